"""Near-duplicate images: within a feature set, between its splits, or between two sets.

Read `find` first: it opens the sets, divides their rows into parts (`parts`), has all pairs above a
threshold found, by comparing everything in blocks (`pairs`) or through a graph (`graph_pairs`),
keeps those whose images align if asked (`confirmed`, `alignment`), and joins them to groups
(`groups`). `thresholds` has the calibrated thresholds, `page` draws the groups with their images.
Any features will do; nothing here knows heads or captions.
"""
