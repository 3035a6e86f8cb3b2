"""The steps from a dataset to recall tables, one module per kind."""
