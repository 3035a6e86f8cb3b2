"""Near-duplicate images: within a feature set, between its splits, or between two sets.

`find` is the entry: it divides rows into `parts`, finds `pairs` above a threshold, exactly or
through a graph, optionally aligns the pixels of their images (`confirmed`), and groups them.
"""
