"""Whether an output is current, for every output of every command, and what replaces a stale one.

`replace` swaps folders, and moves outputs of other options aside and back.
"""
