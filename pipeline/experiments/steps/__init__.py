"""The steps from a dataset to recall tables, a module for each kind, and whether each must run."""
