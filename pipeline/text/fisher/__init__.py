"""Fisher vectors: the codebook, its mixtures, and the gradients of captions."""
