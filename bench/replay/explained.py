"""What may differ between the two sides, each line with its reason. Empty: nothing may."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Explained:
    """Differences that are not counted.

    Attributes
    ----------
    path : str. Files, as a pattern of `fnmatch` over their path below the working folder.
    place : str. Places within them, as a pattern over `Difference.place`.
    reason : str. Why they differ, and why that is right.
    """

    path: str
    place: str
    reason: str


EXPLAINED: tuple[Explained, ...] = ()
