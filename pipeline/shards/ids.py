"""Row ids: unique, and fit to be file names."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.datasets.manifest import check_relative
from pipeline.shards.format import ShardError


def repeated(ids: Iterable[str]) -> list[str]:
    """Return the ids that occur more than once, in the order of their first occurrence."""
    return [one for one, count in Counter(ids).items() if count > 1]


def require_unique_ids(ids: Iterable[str], where: str) -> None:
    """Check that no id occurs twice.

    Raises
    ------
    ShardError
        How many do, and the first five.
    """
    if twice := repeated(ids):
        raise ShardError(
            f"{where}: {len(twice)} of the ids occur more than once, first {twice[:5]}; every row "
            "needs an id of its own"
        )


def require_usable_ids(ids: Sequence[str], where: str) -> None:
    """Check that ids are unique and fit to be ids of a dataset.

    Raises
    ------
    ShardError
        Repeated ids, or ids that could not be file names below a folder.
    """
    require_unique_ids(ids, where)
    for row, one in enumerate(ids):
        if fault := check_relative(one):
            raise ShardError(f"{where}: id {one!r} of row {row} {fault}; ids are relative paths")
