"""Short clips that the project draws, with sound, and describes: a stand-in for filmed ones.

A moving scene is two events, one after the other (`events`); it is described (`event_captions`),
drawn and heard (`film`) and written as MP4 or GIF (`encode_clip`); `draw_clips` joins them. Every
scene is shown in both orders of its events, so that nothing but the order tells its two clips
apart.
"""
