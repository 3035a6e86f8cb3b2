"""Metadata of published shards: a dataset card and Croissant."""
