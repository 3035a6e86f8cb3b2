"""Comparison of two systems by a paired test, and lists of claims tested together.

Read `compare` first: the kinds of files and the figures that can be compared. `claim` defines
claims as data, `published.json` lists those of the five papers, `judge` tests a list on existing
outputs, and `tables` formats the results. The test itself is
`pipeline.studies.significance.paired`.
"""

from pipeline.store.errors import PipelineError


class ClaimError(PipelineError):
    """A list of claims is corrupt, or two outputs cannot be compared."""
