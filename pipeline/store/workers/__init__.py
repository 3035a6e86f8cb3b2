"""Work on several processes or machines, through Dask.

Read `place` first (where a job runs; the only module that jobs import), then `connect` (local
workers or those of a scheduler) and `executor` (tasks in flight, results, progress, failures). This
package does not depend on what a task does, and alone imports Dask.
"""
