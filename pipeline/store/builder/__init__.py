"""Building feature sets: resume, write, and publish.

Where a killed run resumes: `ShardBuild` (`feature_build`) has one array, `state`, with one value
per row: *pending*, *reusable* or *stored*; only pending rows are computed. On entry, a row is

1. stored, if its shard is finished: in the output, or in the work folder `.work/NAME-FINGERPRINT`
   next to it, where each shard has a folder of its own. Every byte of the shard is verified;
2. reusable, if an update finds it in an older shard, of the previous set or of unfinished work;
3. stored, if a journal in the shard's folder has it (`journal`). Computed rows are appended there
   and flushed every 20 s, each with its checksums, so a kill loses 20 s, a torn record one row;
4. pending otherwise.

`redo` makes changed rows pending again. Once a shard has no pending row, it is assembled from all
these files, verified, and renamed into place (`unfinished_shard`); its journals are deleted after
that. Shards are then renamed to the output, `index.json` is written last, and the work folder
deleted. Whenever a run ends, the same call continues from one of these states to the same bytes.

`existing` plans the rows of an output that has some, `reuse` finds rows of older sets, `locking`
admits one writer. `arrays` builds a set from an array.
"""
