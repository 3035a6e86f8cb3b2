"""Short clips with sound, drawn and captioned by the project, as a substitute for real ones.

A moving scene is a sequence of two events; it exists in both orders, so that only the order
distinguishes its two clips. `draw_clips` combines captions, `film` and encoding.
"""
