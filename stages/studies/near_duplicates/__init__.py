"""Commands of `pipeline.studies.near_duplicates`."""
