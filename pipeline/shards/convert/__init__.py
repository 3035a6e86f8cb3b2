"""Feature sets from and to the formats of other programs, and several sets merged into one.

One function each: `export`, `merge` and `importers.import_features`; `layouts` names the formats.
They read through `FeatureSet` or `ShardFile` and write through
`pipeline.shards.resume`; nothing here computes features.
"""
