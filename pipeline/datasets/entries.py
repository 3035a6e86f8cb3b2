"""The entries of a dataset, stored column-wise: a million images with five captions in 0.4 GB."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, overload

import numpy as np
import numpy.typing as npt

from pipeline.store.packed import PackedTexts

_AT_ONCE = 1 << 13


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """One image or clip."""

    id: str  # in every derived file, unique in its dataset
    file: str  # path relative to the dataset's image root, with forward slashes
    split: str  # "train", "val", "test" or another name from the source
    captions: tuple[str, ...]  # all, in the order of the source

    @property
    def caption_ids(self) -> tuple[str, ...]:
        """`<image id>#<k>` for each caption, k from 0."""
        return tuple(f"{self.id}#{k}" for k in range(len(self.captions)))

    @property
    def first_caption(self) -> str:
        """The first caption, or ""."""
        return next(iter(self.captions), "")


@dataclass(frozen=True, eq=False)
class Captions:
    """Captions or phrases with their ids, in a fixed order."""

    ids: Sequence[str]
    texts: Sequence[str]


@dataclass(frozen=True, eq=False)
class _Columns:
    """Columns of all entries of a dataset."""

    ids: PackedTexts
    files: PackedTexts
    captions: PackedTexts
    splits: tuple[str, ...]  # names in order of first appearance
    split: npt.NDArray[np.int32]  # (images,): index of each entry's split
    first: npt.NDArray[np.int64]  # (images + 1,): index of each first caption; last: their number


class PackedEntries(Sequence[ImageEntry]):
    """Immutable entries, possibly a selection of a larger collection.

    `ImageEntry` objects are created on access. Slices are `PackedEntries` over the same columns,
    and equal any sequence of the same entries.
    """

    def __init__(self, columns: _Columns, rows: npt.NDArray[np.int64]) -> None:
        self._columns, self._rows = columns, rows

    @classmethod
    def of(
        cls, entries: Iterable[ImageEntry], check: Callable[[list[ImageEntry]], None] | None = None
    ) -> "PackedEntries":
        """Pack entries, iterated over once; `check`, if any, validates some thousands at a time."""
        if isinstance(entries, PackedEntries):
            return entries
        ids: list[PackedTexts] = []
        files: list[PackedTexts] = []
        number: dict[str, int] = {}
        split: list[npt.NDArray[np.int32]] = [np.zeros(0, np.int32)]
        counts: list[npt.NDArray[np.int64]] = [np.zeros(1, np.int64)]

        # A generator, so that `entries` is read once and captions are never all in a list.
        def captions() -> Iterator[str]:
            """Yield all captions, and fill the other columns as a side effect."""
            remaining = iter(entries)
            while chunk := list(islice(remaining, _AT_ONCE)):
                if check is not None:
                    check(chunk)
                ids.append(PackedTexts(entry.id for entry in chunk))
                files.append(PackedTexts(entry.file for entry in chunk))
                numbers = [number.setdefault(entry.split, len(number)) for entry in chunk]
                split.append(np.array(numbers, np.int32))
                counts.append(np.array([len(entry.captions) for entry in chunk], np.int64))
                for entry in chunk:
                    yield from entry.captions

        texts = PackedTexts(captions())
        columns = _Columns(
            PackedTexts.joined(ids),
            PackedTexts.joined(files),
            texts,
            tuple(number),
            np.concatenate(split),
            np.concatenate(counts).cumsum(),
        )
        return cls(columns, np.arange(len(columns.ids)))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> ImageEntry: ...
    @overload
    def __getitem__(self, index: slice) -> "PackedEntries": ...
    def __getitem__(self, index: int | slice) -> "ImageEntry | PackedEntries":
        """Return one entry, or those of a slice."""
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        row, of = int(self._rows[index]), self._columns
        captions = of.captions[of.first[row] : of.first[row + 1]]
        return ImageEntry(of.ids[row], of.files[row], of.splits[of.split[row]], tuple(captions))

    def __iter__(self) -> Iterator[ImageEntry]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self._entries(self._rows[start : start + _AT_ONCE])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} entries, first {list(self[:2])}>"

    def take(self, rows: npt.NDArray[np.int64]) -> "PackedEntries":
        """Return the entries at positions (n,)."""
        return PackedEntries(self._columns, self._rows[rows])

    @property
    def ids(self) -> Sequence[str]:
        """The id of each entry."""
        return self._texts_of(self._columns.ids)

    @property
    def files(self) -> Sequence[str]:
        """The file of each entry."""
        return self._texts_of(self._columns.files)

    @property
    def splits(self) -> list[str]:
        """The split of each entry."""
        names = np.array(self._columns.splits, np.dtypes.StringDType())
        splits: list[str] = names[self._columns.split[self._rows]].tolist()
        return splits

    @property
    def num_captions(self) -> npt.NDArray[np.int64]:
        """Number of captions of each entry, (n,)."""
        return np.diff(self._columns.first)[self._rows]

    @property
    def captions(self) -> Captions:
        """All captions of these entries, with their ids."""
        texts, counts = self._columns.captions, self.num_captions
        if not self._is_whole:
            texts = texts.take(self._caption_rows(self._rows))
        numbered = zip(self.ids, counts.tolist(), strict=True)
        return Captions(PackedTexts(f"{name}#{k}" for name, n in numbered for k in range(n)), texts)

    @property
    def counts(self) -> dict[str, int]:
        """Number of entries of each split, in order of first appearance in the dataset."""
        counts = np.bincount(self._columns.split[self._rows], minlength=len(self._columns.splits))
        by_split = zip(self._columns.splits, counts.tolist(), strict=True)
        return {name: count for name, count in by_split if count}

    def of_split(self, split: str) -> "PackedEntries":
        """Return the entries of an existing split."""
        return self.of_splits((split,))

    def of_splits(self, splits: Sequence[str]) -> "PackedEntries":
        """Return the entries of existing splits, one split after the other."""
        numbers = [self._columns.splits.index(split) for split in splits]
        split = self._columns.split[self._rows]
        return self.take(np.concatenate([np.flatnonzero(split == number) for number in numbers]))

    @property
    def _is_whole(self) -> bool:
        rows, total = self._rows, len(self._columns.ids)
        return len(rows) == total and bool((rows == np.arange(total)).all())

    def _texts_of(self, column: PackedTexts) -> Sequence[str]:
        return column if self._is_whole else column.take(self._rows)

    def _caption_rows(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the positions of the captions of entries (n,) among all captions."""
        first = self._columns.first
        counts = first[rows + 1] - first[rows]
        # First caption of each entry, minus the number of captions before it.
        shifts = first[rows] - (counts.cumsum() - counts)
        return np.repeat(shifts, counts) + np.arange(counts.sum())

    def _entries(self, rows: npt.NDArray[np.int64]) -> Iterator[ImageEntry]:
        columns = self._columns
        texts = iter(columns.captions.take(self._caption_rows(rows)))
        of_each = zip(
            columns.ids.take(rows),
            columns.files.take(rows),
            columns.split[rows].tolist(),
            (columns.first[rows + 1] - columns.first[rows]).tolist(),
            strict=True,
        )
        for name, file, split, count in of_each:
            yield ImageEntry(name, file, columns.splits[split], tuple(islice(texts, count)))


@dataclass(frozen=True)
class FilesBelow(Sequence[Path]):
    """Sequence of the paths of files below an image root, created on access."""

    root: Path
    files: Sequence[str]

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> list[Path]: ...
    def __getitem__(self, index: int | slice) -> Path | list[Path]:
        """Return one path, or the list of those of a slice."""
        if isinstance(index, slice):
            return [self.root / file for file in self.files[index]]
        return self.root / self.files[index]

    def __iter__(self) -> Iterator[Path]:
        return (self.root / file for file in self.files)
