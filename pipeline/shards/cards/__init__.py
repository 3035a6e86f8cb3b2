"""What travels with published shards: a dataset card and Croissant metadata."""
