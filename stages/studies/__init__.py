"""Commands of `pipeline.studies`."""
