"""Scores of generated captions against human references.

Read `table` first: all scores of a set of captions. `bleu`, `rouge` and `cider` are metrics over
tokenized captions; `bleu` also counts the n-grams for `cider`. There are no models or files here.
"""
