"""Replay: the same commands by the code of a commit and of the tree, compared byte for byte.

Read `commands/*.txt` first: what is run. `explained.py` lists what may differ, and why.
"""
