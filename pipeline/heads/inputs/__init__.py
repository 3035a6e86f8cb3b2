"""Features as heads read them.

Read `pairs` first: the rows of both sides of a split, joined by id. `feature_spec` has the shapes
and recipes that a head is built from; `batches` divides an epoch and loads batches.
"""
