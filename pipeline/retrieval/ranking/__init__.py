"""Exact ranks of the correct items, within the galleries of a protocol, and their figures.

Read `ranks` first: one pass over the similarities for both directions, with the tie rule. A block
of similarities is computed and counted on the host (`blocks`) or on a torch device (`on_device`);
`protocols` and `galleries` define which images and captions are ranked together. `recall` computes
the metrics of ranks, `bootstrap` their intervals.
"""
