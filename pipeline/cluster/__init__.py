"""Work on several processes or machines, by Dask.

Read `place` first (where a job's work is done; the only module that jobs import), then `connect`
(local workers or a scheduler's) and `executor` (tasks in flight, results, progress). `failures`
words the errors. Nothing here knows what a task does, and only this package imports Dask.
"""
