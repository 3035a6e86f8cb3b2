"""Work spread over Dask workers; it knows nothing of what a task does."""
