"""Feature sets of an older version of the format, written in the present one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.progress import QUIET, Monitor, Stopwatch
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import FORMAT_VERSION, OtherShard, RowBlock, ShardError
from pipeline.store.shards.index import FeatureIndex, read_index
from pipeline.store.shards.plan import Span
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.side_by_side import require_own_rows


def convert_features(
    features: str | Path, out: str | Path, *, monitor: Monitor = QUIET
) -> FeatureIndex | None:
    """Convert a feature set to the current version of the format, and verify it.

    Rows, their division into shards, failures and `content_sha256` are those of the set, which is
    left unchanged. An interrupted call resumes when it is repeated.

    Parameters
    ----------
    features : str or Path. Folder of the set.
    out : str or Path. Folder of the new shards.
    monitor : Monitor. Receives the progress and the log line.

    Returns
    -------
    FeatureIndex or None
        Index of the new set. None, with a log line, if the set has the current version.

    Raises
    ------
    DamagedShard
        A row differs from its checksum.
    OtherShard
        The output holds another set, or one of an older version.
    ShardError
        The folder is a view of other sets, or no finished set.

    Examples
    --------
    >>> pipeline.convert_features("features/mine", "features/new")  # of version 2: nothing to do
    """
    require_own_rows(features)
    index = read_index(features)
    header = index.header
    if header.format_version == FORMAT_VERSION:
        monitor.log(f"{features} has version {FORMAT_VERSION} of the format: nothing to do")
        return None
    old = FeatureSet(features)
    software = [entry.created_by or header.created_by for entry in index.shards]
    header = replace(header.renewed, created_by="; ".join(dict.fromkeys(software)))
    compress = ShardFile(old.folder / index.shards[0].file).compressed
    inputs = ["converted", index.content_sha256]
    build = ShardBuild(out, header, old.ids, index.rows_per_shard, compress, inputs)
    build.plan = index.plan()  # that of a set that has grown, too

    def compute(spans: Sequence[Span], _: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        for span in spans:
            row = span.start
            for block in old.blocks(build.ids[row : span.stop], allow_failed=True):
                yield row, block
                row += len(block)

    with build, monitor.progress("convert", "row") as progress:
        if build.header.format_version != FORMAT_VERSION:
            raise OtherShard(
                f"{out} has version {build.header.format_version} of the format, not "
                f"{FORMAT_VERSION}; choose another output folder"
            )
        new = build.fill(compute, progress)
    if new.content_sha256 != index.content_sha256:
        raise ShardError(
            f"{out} has the content {new.content_sha256}, {features} {index.content_sha256}: the "
            f"set or its index has changed; run `pipeline shards verify {features}`"
        )
    return new
