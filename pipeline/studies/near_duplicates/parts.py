"""Rows to compare, in parts: whole feature sets, or splits of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.datasets.manifest import Manifest
from pipeline.retrieval.similarity import row_vectors, unit_rows
from pipeline.store.errors import PipelineError
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK

Vectors = npt.NDArray[np.float32]
RowNumbers = npt.NDArray[np.int64]

BLOCK_ROWS = 4096
_BLOCK_BYTES = 128 << 20


class DuplicatesError(PipelineError):
    """Features cannot be compared, or no threshold is calibrated for them."""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a feature set, all with features.

    Attributes
    ----------
    features : FeatureSet. The feature set.
    rows : (n,) int64. Row numbers in the set.
    split : str. Name of their split, or "".
    failed : int. Number of excluded rows without features.
    """

    features: FeatureSet
    rows: RowNumbers
    split: str = ""
    failed: int = 0

    @classmethod
    def of(cls, features: FeatureSet, rows: RowNumbers, split: str = "") -> "Part":
        """Return a part with those of the rows (n,) that have features."""
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
        """Return the vectors of rows `start` to `stop` - 1 at length 1, (n, dim); 0 stays 0.

        Raises
        ------
        DamagedShard
        """
        vectors = row_vectors(self.features.read_rows(self.rows[start:stop]))
        return unit_rows(vectors).astype(np.float32)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a part, read at once.

    Attributes
    ----------
    part : int. Its number.
    start, stop : int. Row range in the part.
    first : int. Number of the row `start`, counted over all parts.
    """

    part: int
    start: int
    stop: int
    first: int


def blocks_of(parts: Sequence[Part], rows: int | None = None) -> Iterator[Block]:
    """Yield the rows of all parts in blocks of at most `rows`; None: by the memory limit.

    No block crosses two parts.
    """
    first = 0
    for number, part in enumerate(parts):
        step = rows or _block_rows(part)
        for start in range(0, len(part), step):
            stop = min(start + step, len(part))
            yield Block(number, start, stop, first + start)
        first += len(part)


def located(parts: Sequence[Part], row: int) -> tuple[Part, str]:
    """Return the part and the id of a row, numbered over all parts."""
    for part in parts:
        if row < len(part):
            return part, part.features.ids[int(part.rows[row])]
        row -= len(part)
    raise IndexError(row)


def parts_of_sets(sets: Sequence[FeatureSet]) -> list[Part]:
    """Return one part per feature set, with all its rows.

    Raises
    ------
    DuplicatesError
        The sets have features of different recipes or weights.
    """
    first, *others = sets
    for other in others:
        if other.recipe_hash != first.recipe_hash or other.row_shape != first.row_shape:
            raise DuplicatesError(
                f"{first.folder} has features {_named(first)} and {other.folder} {_named(other)}: "
                "their cosines are meaningless; extract both with one recipe and the same weights"
            )
    return [Part.of(features, np.arange(len(features))) for features in sets]


def parts_of_splits(features: FeatureSet, manifest: Manifest, splits: Sequence[str]) -> list[Part]:
    """Return one part per split of a dataset.

    Parameters
    ----------
    features : FeatureSet. A row for each image of the splits, by image id.
    manifest : Manifest. The dataset.
    splits : sequence of str. Names of its splits, each once.

    Raises
    ------
    DatasetError
        The dataset has no such split.
    MissingRows
        An image of a split has no row.
    """
    return [Part.of(features, features.rows_of(manifest.select(name).ids), name) for name in splits]


def _block_rows(part: Part) -> int:
    values = int(np.prod(part.features.row_shape, dtype=np.int64))
    return max(1, min(BLOCK_ROWS, _BLOCK_BYTES // (4 * values)))


def _named(features: FeatureSet) -> str:
    header = features.index.header
    return f"{header.recipe.get('name', '?')} {features.row_shape} ({header.recipe_hash})"
