"""Commands of `pipeline.language`."""
