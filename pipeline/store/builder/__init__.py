"""Building feature sets: resume, write and publish, in this process or on workers.

Read `feature_build` first, then `partial_shard` (one unfinished shard and its pieces), `existing`
(previous contents of the output) and `publish`. `job` is the task that computes one shard,
`compute` runs the tasks of a set on an executor, `job_ref` describes a task to workers. `arrays`
builds a set from an array.
"""
