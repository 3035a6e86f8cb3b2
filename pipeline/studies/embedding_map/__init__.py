"""A two-dimensional map of image embeddings: positions, labelled groups and neighbours."""
