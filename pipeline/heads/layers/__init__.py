"""Layers that several heads share: recurrent and transformer encoders, and the scaling of features.

Read `rnn` first: its word table and packed sequences are used by every head that reads token ids.
What only one head uses is in that head's module; how layers are trained is no business of theirs.
"""
