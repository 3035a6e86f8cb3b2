"""Feature shards: HDF5 files with ids beside every row, and the index that makes them one set.

Read `format` first (what a set, a row and a shard are), then `layout` (how HDF5 stores them),
`plan` (which rows go into which shard), `writer` and `reader` (one shard), `index` and
`feature_set` (a whole set, read by id). `sandbox` decides which files are trusted. `resume` makes
sets, `verify` checks them, `convert` imports, exports and merges them, `remote` moves them. Nothing
here imports torch or knows what a feature is made from.
"""
