"""Feature sets on disk: files of rows with ids, how they are built, resumed, shared and converted.

`shards` is the file format, `builder` writes and resumes it, `jobs` drives every family of features
through `builder`, `workers` runs tasks through Dask, `share` transfers sets, `convert` translates
them. All packages use the modules of this folder: errors, files, hashes, schemas.
"""
