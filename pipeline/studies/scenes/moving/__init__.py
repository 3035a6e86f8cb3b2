"""Short clips with sound, drawn and captioned by the project, as a substitute for real ones.

A moving scene is a sequence of two events (`events`); it is captioned (`event_captions`), rendered
as frames and sound (`film`) and written as MP4 or GIF (`encode_clip`); `draw_clips` combines them.
Every scene exists in both orders of its events, so that only the order distinguishes its two clips.
"""
