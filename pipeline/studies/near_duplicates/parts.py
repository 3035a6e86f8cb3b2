"""Rows to compare, in parts: whole feature sets, or splits of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.datasets.manifest import Manifest
from pipeline.retrieval.similarity import Vectors, row_vectors, unit_rows
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.studies import StudyError

BLOCK_ROWS = 4096
_BLOCK_BYTES = 128 << 20


@dataclass(frozen=True, eq=False)
class Subset:
    """Rows of a feature set, all with features."""

    features: FeatureSet
    rows: RowNumbers  # (n,) int64, row numbers in the set
    split: str = ""  # name of their split, or ""
    failed: int = 0  # number of excluded rows without features

    @classmethod
    def of(cls, features: FeatureSet, rows: RowNumbers, split: str = "") -> "Subset":
        """Return those of the rows (n,) of a set that have features."""
        usable = rows[features.status[rows] == OK]
        return cls(features, usable, split, len(rows) - len(usable))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[str]:
        """The id of each row."""
        ids = self.features.ids
        return [ids[row] for row in self.rows.tolist()]

    def vectors(self, start: int, stop: int) -> Vectors:
        """Return the vectors of rows `start` to `stop` - 1 at length 1, (n, dim); 0 stays 0."""
        vectors = row_vectors(self.features.read_rows(self.rows[start:stop]))
        return unit_rows(vectors).astype(np.float32)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a part, read at once."""

    part: int
    start: int  # row range in the part
    stop: int
    first: int  # number of the row `start`, counted over all parts


def blocks_of(parts: Sequence[Subset], rows: int | None = None) -> Iterator[Block]:
    """Yield the rows of each part in blocks of at most `rows`; None: by the memory limit."""
    first = 0
    for number, part in enumerate(parts):
        step = rows or _block_rows(part)
        for start in range(0, len(part), step):
            stop = min(start + step, len(part))
            yield Block(number, start, stop, first + start)
        first += len(part)


def located(parts: Sequence[Subset], row: int) -> tuple[Subset, str]:
    """Return the part and the id of a row, numbered over all parts."""
    for part in parts:
        if row < len(part):
            return part, part.features.ids[int(part.rows[row])]
        row -= len(part)
    raise IndexError(row)


def parts_of_sets(sets: Sequence[FeatureSet]) -> list[Subset]:
    """Return one part per feature set, with all its rows."""
    first, *others = sets
    for other in others:
        if other.recipe_hash != first.recipe_hash or other.row_shape != first.row_shape:
            raise StudyError(
                f"{first.folder} has features {_named(first)} and {other.folder} {_named(other)}: "
                "their cosines are meaningless; extract both with one recipe and the same weights"
            )
    return [Subset.of(features, np.arange(len(features))) for features in sets]


def parts_of_splits(
    features: FeatureSet, manifest: Manifest, splits: Sequence[str]
) -> list[Subset]:
    """Return one part per split of a dataset."""
    return [
        Subset.of(features, features.rows_of(manifest.select(name).ids), name) for name in splits
    ]


def _block_rows(part: Subset) -> int:
    values = int(np.prod(part.features.row_shape, dtype=np.int64))
    return max(1, min(BLOCK_ROWS, _BLOCK_BYTES // (4 * values)))


def _named(features: FeatureSet) -> str:
    header = features.index.header
    return f"{header.recipe.get('name', '?')} {features.row_shape} ({header.recipe_hash})"
