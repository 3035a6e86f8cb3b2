"""Commands of `pipeline.web`."""
