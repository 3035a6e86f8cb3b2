"""Conversion of feature sets from and to other formats, and merging.

One function each: `export`, `merge`, `convert_features` (`new_version`) and
`importers.import_features`; `layouts` names the formats.
They read through `FeatureSet` or `ShardFile` and write through `pipeline.store.builder`.
"""
