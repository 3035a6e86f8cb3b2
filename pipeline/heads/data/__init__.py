"""Features as heads read them.

Read `pairs` first: the rows of both sides of a split, joined by id. `feature_spec` has what a head
is told of its features before it sees any, `batches` divides an epoch and loads it, `word_vectors`
looks up a vector for each token id. No model and no path convention lives here.
"""
