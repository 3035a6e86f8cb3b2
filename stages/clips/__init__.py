"""Commands of `pipeline.clips`."""
