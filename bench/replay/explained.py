"""Allowed differences between both sides, with reasons."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Explained:
    """Differences that are allowed.

    Attributes
    ----------
    path : str. `fnmatch` pattern of the file paths below the working folder.
    place : str. `fnmatch` pattern of `Difference.place`.
    reason : str. Why they differ, and why that is correct.
    """

    path: str
    place: str
    reason: str


# Since the rooms (November 2026). Older differences are listed in the commits that made them.
EXPLAINED: tuple[Explained, ...] = (
    Explained(
        "stdout/recipes-in-full/*",
        "only in tree",
        "`pipeline recipes NAME` is `pipeline list recipes NAME`; it prints the same bytes",
    ),
    Explained(
        "*/mfcc-*.codebook.safetensors",
        "*",
        "a codebook of sound words records their requested number; its arrays are the same",
    ),
)
