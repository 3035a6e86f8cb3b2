"""Feature shards: HDF5 files with ids beside every row, and the index that makes them one set.

Read `format` first (what a set, a row and a shard are), then `plan` (which rows go into which
shard), `write` and `shard_file` (one shard), `index` and `feature_set` (a whole set, read by id).
`resume` makes sets, `verify` checks them, `convert` imports, exports and merges them, `remote`
moves them. Nothing here imports torch or knows what a feature is made from.
"""
