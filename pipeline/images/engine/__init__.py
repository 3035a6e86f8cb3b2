"""The fast engine: the same network with fused layers, and ten crops with shared computation.

Read `fuse` first, which rewrites a traced network; `onednn` and `winograd` implement its layers,
and `ten_crops` computes the overlap of ten crops once. No module here knows recipes, files or
shards.
"""
