"""What is done with finished feature sets, one function each: `pipeline shards` calls them.

`verify`, `describe`, `export`, `merge`, `dataset_card` and `importers.catalogue`; `layouts` names
the formats of other programs. They read through `FeatureSet` or `ShardFile` and write through
`pipeline.shards.build`; nothing here computes features.
"""
