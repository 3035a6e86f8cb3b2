"""Scores of generated captions against those that people wrote.

Read `table` first: all scores of a set of captions. `bleu`, `rouge` and `cider` are the measures,
each over captions that are split into words already; `bleu` has the n-grams that two of them count.
Nothing here knows models or files.
"""
