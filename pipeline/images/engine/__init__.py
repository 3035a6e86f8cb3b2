"""The fast engine: the same network with its layers fused and the ten crops sharing work."""
