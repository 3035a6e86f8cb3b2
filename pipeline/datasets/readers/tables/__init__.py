"""Tables of paths and captions, from any kind of file or from memory, each into the same rows.

Read `table` first (records with their places), then `open_tables`, which chooses the reader of a
file: `delimited`, `json_records`, `parquet`, `tar_shards`. `columns` says what the columns mean and
`rows` makes rows of records; `paths` finds the files, and `faults` gathers what cannot be used.
"""
