"""Replay: the same commands with the code of a commit and of the tree, compared byte for byte.

Read `commands/*.txt` first, the list of commands. `explained.py` lists allowed differences with
reasons.
"""
