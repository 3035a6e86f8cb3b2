"""Feature sets on disk: files of rows with ids, how they are built, resumed, shared and converted.

`shards` is the file format, `builder` writes and resumes it, `jobs` drives every family of features
through `builder`, `workers` are Dask's, `share` transfers sets and `convert` translates them. The
modules of this folder are what all rooms use: errors, files, hashes, schemas, progress.
"""
