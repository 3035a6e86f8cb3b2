"""Near-duplicate images: within a feature set, between its splits, or between two sets.

Read `find` first: it opens the sets, divides their rows into parts (`parts`), finds all pairs above
a threshold, by block-wise comparison (`pairs`) or through a graph (`graph_pairs`), optionally keeps
those whose images align (`confirmed`, `alignment`), and joins them to groups (`groups`).
`thresholds` has the calibrated thresholds, `page` renders the groups with their images. Any
features can be used; this package does not depend on heads or captions.
"""
