"""Making feature sets: resume, write and publish, in this process or on workers.

Read `feature_build` first, then `partial_shard` (one unfinished shard and its pieces), `existing`
(what the output holds already) and `publish`. `arrays` makes a set from an array in one call.
Workers: `job_ref`, `job`, `distributed`. What computes a row, and how tasks reach workers, is not
known here.
"""
