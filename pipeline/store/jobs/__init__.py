"""Jobs that compute feature sets: one driver for every family of features.

Read `feature_source` first: the interface of a family. `make_features` is the driver: it locks the
output, finds changed, failed and new rows, resumes, computes the missing rows in this process or on
workers (`worker`), and publishes. `options` are the options that all families share, `origins` the
sources of rows and change detection, `ordered` the thread prefetch. For feature sets in a store,
`sharded_source` is the interface, `object_shards` the driver, and `publish_shard` computes one
shard, here or on a worker that shares no folder. This package does not depend on what a row is.
"""
