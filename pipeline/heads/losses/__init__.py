"""Training losses over scores or embeddings, as pure functions without parameters.

Read `ranking` first: sum and max of hinges, sampled contrast and InfoNCE over a score matrix, and
Matryoshka prefixes. `structure` has the two-branch network's loss, `nodes` the losses that align
cells with words. Similarities are in `pipeline.retrieval.torch_scores`.
"""
