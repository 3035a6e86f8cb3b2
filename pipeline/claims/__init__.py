"""Which of two systems is better, by a paired test, and lists of claims tested in one go.

Read `compare` first: what kinds of files are compared, and by which figures. `claim` is a list of
claims as data, `published.json` that of the five papers, `judge` tests the claims of a list on what
has been evaluated, and `tables` prints the outcome. The test itself is
`pipeline.retrieval.significance.paired`.
"""

from pipeline.errors import PipelineError


class ClaimError(PipelineError):
    """A list of claims is damaged, or two outputs cannot be compared."""
