"""Comparison of two systems by a paired test, and lists of claims that are tested together.

`compare` is the entry; `judge` tests a list of `claim.Claim`, such as `published.json`.
"""
