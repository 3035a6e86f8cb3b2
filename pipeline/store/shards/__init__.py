"""Feature shards: HDF5 files of features with their ids, and the index of a feature set.

Read `format` first (feature set, row, shard), then `layout` (the HDF5 layout), `plan` (row ranges
of shards), `writer` and `reader` (one shard), `index` and `feature_set` (a whole set, read by id).
`sandbox` tries shards of unknown origin in a child process, `verify` checks sets. This package does
not import torch and does not depend on what the features describe.
"""
