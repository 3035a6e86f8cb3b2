"""Features as heads read them.

Read `pairs` first: the rows of both sides of a split, joined by id. `feature_spec` has the shapes
and recipes that a head is built from; `batches` divides an epoch and loads batches; `word_vectors`
looks up a vector for each token id. No module here knows models or path conventions.
"""
