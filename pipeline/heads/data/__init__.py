"""Features as heads read them: rows, pairs, batches."""
