"""Readers of published datasets, and of a folder with a table, each into a `Manifest`.

Read `folder` first: a folder with a table of paths and captions (`tables`) or without one
(`image_files`), joined by `join_rows`. Readers of clips find their files by `clip_files`. What all
of them need to read a source file is `pipeline.datasets.source`.
"""
