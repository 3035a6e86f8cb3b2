"""Making feature sets: resume, write and publish, in this process or on workers.

Read `feature_build` first, then `partial_shard` (one unfinished shard and its pieces), `existing`
(what the output holds already) and `publish`. `job` is the task that computes one shard, `compute`
runs the tasks of a set on an executor, `job_ref` tells workers about a task. `arrays` makes a set
from an array in one call. What computes a row, and how tasks reach workers, is not known here.
"""
