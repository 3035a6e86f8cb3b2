"""Commands of `pipeline.regions`."""
