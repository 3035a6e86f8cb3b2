"""Features as heads read them.

Read `pairs` first: the rows of both sides of a split, joined by id. `feature_spec` has the
shapes and recipes from which a head is built, `batches` divides an epoch and loads it,
`word_vectors` looks up a vector for each token id. No model and no path convention lives here.
"""
