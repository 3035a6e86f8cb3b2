"""Exact ranks of the correct items, within the galleries that a protocol asks for.

Read `ranks` first: one pass over the similarities for both directions, with the tie rule. A block
of them is compared and counted on the host (`blocks`) or on a torch device (`on_device`);
`protocols` and `galleries` define which images and captions are ranked together.
"""
