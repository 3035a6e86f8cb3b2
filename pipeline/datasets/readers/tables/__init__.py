"""Tables of paths and captions, from files of many formats or from memory, as uniform rows.

Read `table` first (records with their locations), then `open_tables`, which selects the reader of a
file: `text_tables` (CSV and JSON), `parquet` or `tar_shards`. `columns` identifies the columns and
`rows` converts records to rows, and `paths` finds the files.
"""
