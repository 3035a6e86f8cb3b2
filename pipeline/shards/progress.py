"""How long work says how far it is."""

from collections.abc import Callable

# Called with rows done, rows in all, and how many of them failed.
Progress = Callable[[int, int, int], None]


def silent(done: int, total: int, failed: int) -> None:
    """Say nothing."""
