"""The fast engine: the same network with its layers fused and the ten crops sharing work.

Read `fuse` first, which rewrites a traced network; `onednn` and `winograd` are the layers that it
puts in, `ten_crops` computes what ten crops have in common once. Nothing here knows of recipes,
files or shards.
"""

ENGINES = ("fast", "reference")
"""Ways to compute a network, whose features agree up to rounding; "reference" uses nothing here."""
