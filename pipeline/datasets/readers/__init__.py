"""Readers of published datasets, and of a folder with a table, each into a `Manifest`.

Read `folder` first: a folder with a table of paths and captions (`tables`) or without one
(`image_files`), combined by `join_rows`. Readers of clips find their files with `clip_files`.
`pipeline.datasets.source` has what all of them need to read a source file.
"""
