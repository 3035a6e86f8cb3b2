"""Feature shards: planned, written, checked and read by id."""
