"""Training losses: scores, a choice of negatives, a hinge and its reduction.

Read `ranking` first: sums and maxima of hinges, sampled contrast and InfoNCE over a matrix of
scores, and those of prefixes. `structure` has the two-branch network's loss and `nodes` those that
align cells with words.
Similarities are in `pipeline.retrieval.torch_scores`; no loss draws batches or has weights.
"""
