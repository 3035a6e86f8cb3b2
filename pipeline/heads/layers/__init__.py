"""Layers that several heads share: recurrent and transformer encoders, and feature scaling.

Read `rnn` first: every head that reads token ids uses its word table and packed sequences. Layers
of a single head are in that head's module; training is elsewhere.
"""
