"""Reading one shard: structure, single rows, and verification of every byte."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from io import RawIOBase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import h5py
import numpy as np

from pipeline.store import columns
from pipeline.store.hashing import canonical_json, crc32, sha256_of_file
from pipeline.store.objects.block_cache import CachedFile
from pipeline.store.objects.urls import url_of
from pipeline.store.own_files import reading
from pipeline.store.shards.format import (
    FORMAT,
    OK,
    SOURCE_CRC32,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    ShardEntry,
    ShardError,
)
from pipeline.store.shards.layout import (
    COLUMNS,
    CRC32,
    IDS,
    REQUIRED_TEXTS,
    STATUS,
    row_columns,
    source_columns,
    with_nan,
)

T = TypeVar("T")


class Place(NamedTuple):
    """Where a shard has a column: bytes of a dtype from an offset on, or chunks (None)."""

    dtype: np.dtype
    offset: int | None


# Small enough for a core's cache, since every row is read several times.
_READ_ROWS_BYTES = 1 << 21


class ShardFile:
    """One shard opened for reading, safe in threads, after a fork and, pickled, in spawned workers.

    The constructor checks the structure, `inspect` every byte.
    """

    def __init__(self, path: str | Path, sha256: str = "") -> None:
        """Read everything except the features; raise `DamagedShard` if the structure is invalid.

        `path` may name a URL; `sha256` is of the file, if known (see `CachedFile`).
        """
        self.path = Path(path)
        self._remote = None if url_of(path) is None else CachedFile(path, sha256)
        with self._reading():
            self._read(self._read_structure)
        if self._remote is not None:
            self._remote.require_unchanged()
        self._checked = np.zeros(self.rows, bool)
        self._map: tuple[int, np.ndarray] | None = None

    def _read_structure(self, file: h5py.File) -> None:
        _require_format(self.path, file)
        sizes: dict[str, int] = {}
        features = columns.own_dataset(file, COLUMNS[0], sizes)
        stored = columns.read(file, row_columns(), sizes)
        self.attributes: dict[str, Any] = {
            k: v if isinstance(v, str) else int(v) for k, v in file.attrs.items()
        }
        self.ids: Sequence[str] = stored[IDS]
        self.errors: list[str] = list(stored["errors"])
        self.status: np.ndarray = stored[STATUS]
        self.crc32: np.ndarray = stored[CRC32]
        self.sources: dict[str, np.ndarray] = {c.key: stored[c.key] for c in source_columns()}
        self.row_shape: tuple[int, ...] = features.shape[1:]
        self.dtype: np.dtype = features.dtype
        self.rows: int = features.shape[0]
        self._offset: int | None = features.id.get_offset()
        if self.rows < 1:
            raise ValueError("it has no rows")
        if absent := [name for name in REQUIRED_TEXTS if name not in self.attributes]:
            raise ValueError(f"missing attributes {absent}")
        texts = {name: self.attributes[name] for name in REQUIRED_TEXTS}
        if numbers := [name for name, text in texts.items() if not isinstance(text, str)]:
            raise ValueError(f"attributes {numbers} are not text")

    def _read(self, read: Callable[[h5py.File], T]) -> T:
        """Return what `read` returns for the open file."""

        # The file is closed after each call: an open HDF5 file must not be used after a fork.
        def opened(source: Path | RawIOBase) -> T:
            with h5py.File(source, "r") as file:
                return read(file)

        return opened(self.path) if self._remote is None else self._remote.read_by(opened)

    def _reading(self) -> AbstractContextManager[None]:
        return reading(
            self.path,
            "a feature shard",
            "copy it again, or rerun the command that wrote it, which recomputes only this shard",
            DamagedShard,
            ShardError,
        )

    @property
    def source_crc32(self) -> np.ndarray:
        """(rows,) uint32, CRC-32 of the source of each row; 0 if unknown."""
        return self.sources[SOURCE_CRC32]

    @property
    def compressed(self) -> bool:
        """Whether the features are stored in compressed chunks."""
        return self._offset is None

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the features, as `FeatureHeader.metadata`."""
        return {**self.attributes, "row_shape": self.row_shape, "dtype": str(self.dtype)}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_map": None}

    def stored(self, rows: np.ndarray) -> np.ndarray:
        """Return stored rows (len(rows), *row_shape) without a CRC-32 check."""
        with self._reading():
            if self._offset is not None and self._remote is not None:
                shape = (self.rows, *self.row_shape)
                return self._remote.rows(self._offset, self.dtype, shape, rows)
            if self._offset is not None:
                return self._mapped()[rows]
            if self._remote is not None:
                self._remote.fetch(self._read(lambda file: _chunks_of(file, rows)))
            return self._read(lambda file: self._unpacked(file, rows))

    def places(self) -> tuple[int, dict[str, Place]]:
        """Return the bytes of the file, and the place of each column that it has."""
        with self._reading():
            return self._read(_places)

    def _unpacked(self, file: h5py.File, rows: np.ndarray) -> np.ndarray:
        dataset = file[COLUMNS[0].name]
        stored = np.empty((len(rows), *self.row_shape), self.dtype)
        for position, row in enumerate(rows):
            dataset.read_direct(stored, np.s_[int(row)], np.s_[position])
        return stored

    def view(self, rows: np.ndarray) -> np.ndarray:
        """Return what `stored` does, read-only: rows of the mapped file if they are consecutive."""
        if self._remote is not None or self._offset is None or not (np.diff(rows) == 1).all():
            return self.stored(rows)
        return self._mapped()[rows[0] : rows[-1] + 1]

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return stored rows (len(rows), *row_shape), each checked by CRC-32 on its first read."""
        try:
            stored = self.stored(rows)
            self._check(rows, stored)
        except DamagedShard:
            if self._remote is None:
                raise
            # Perhaps fetched while the object was replaced: once more, or it has changed.
            self._remote.forget()
            stored = self.stored(rows)
            self._check(rows, stored)
        return stored

    def _check(self, rows: np.ndarray, stored: np.ndarray) -> None:
        for position in np.flatnonzero(~self._checked[rows]):
            row = int(rows[position])
            if crc32(stored[position]) != self.crc32[row]:
                raise DamagedShard(
                    f"{self.path}: row {row}, id {self.ids[row]!r}, is corrupt (CRC-32 differs); "
                    "copy the file again or rerun the command that wrote it"
                )
            self._checked[row] = True

    def spans(self) -> Iterator[np.ndarray]:
        """Yield all row numbers in order, in runs of bounded size in bytes."""
        step = max(1, _READ_ROWS_BYTES // max(1, int(np.prod(self.row_shape)) * 4))
        for start in range(0, self.rows, step):
            yield np.arange(start, min(start + step, self.rows))

    def content_hash(self) -> "hashlib._Hash":
        """Return the SHA-256 state of the content up to the features, which the caller adds."""
        content = hashlib.sha256()
        content.update(canonical_json(list(self.ids)).encode())
        content.update(self.status.tobytes())
        content.update(canonical_json(self.errors).encode())
        return content

    def inspect(self, first_row: int) -> ShardEntry:
        """Verify every byte, and NaN against status; return the shard's index entry."""
        # The hash of the content covers ids, status, errors and features, hence it depends neither
        # on the version of HDF5 nor on compression, as the hash of the file does.
        content = self.content_hash()
        # Hashing releases the GIL: the hash of the file is computed next to that of its content.
        with ThreadPoolExecutor(1) as pool:
            sha256 = pool.submit(sha256_of_file, self.path)
            for rows in self.spans():
                stored = self.view(rows)
                self._check(rows, stored)
                if (with_nan(stored) != (self.status[rows] != OK)).any():
                    raise DamagedShard(
                        f"{self.path}: NaN rows and failed rows differ; rerun the command that "
                        "wrote it"
                    )
                content.update(stored.reshape(-1).data)
        return ShardEntry(
            file=self.path.name,
            first_row=first_row,
            rows=self.rows,
            failed_rows=int((self.status != OK).sum()),
            sha256=sha256.result(),
            content_sha256=content.hexdigest(),
        )

    def require(self, header: FeatureHeader, ids: Sequence[str]) -> None:
        """Raise `OtherShard` unless the shard has exactly these rows and this recipe."""
        # Versions of the software are not compared: see `FeatureHeader.difference`.
        if unlike := header.difference_of_shard(self.metadata()):
            raise OtherShard(f"{self.path} {unlike}")
        if self.ids != ids:
            raise OtherShard(
                f"{self.path} holds {self.rows} rows from id {self.ids[:1]}, expected {len(ids)} "
                f"from id {list(ids[:1])}"
            )

    def _mapped(self) -> np.ndarray:
        if self._map is None or self._map[0] != os.getpid():
            shape = (self.rows, *self.row_shape)
            mapped = np.memmap(self.path, self.dtype, "r", self._offset or 0, shape)
            # An ndarray on the same pages: indexing np.memmap is slower.
            self._map = (os.getpid(), mapped.view(np.ndarray))
        return self._map[1]


def _places(file: h5py.File) -> tuple[int, dict[str, Place]]:
    held = ((column.name, file[column.name]) for column in COLUMNS if column.name in file)
    places = {name: Place(dataset.dtype, dataset.id.get_offset()) for name, dataset in held}
    texts = {name for name, place in places.items() if place.dtype.kind == "O"}  # in the heap
    return file.id.get_filesize(), places | {
        name: Place(places[name].dtype, None) for name in texts
    }


def _chunks_of(file: h5py.File, rows: np.ndarray) -> list[tuple[int, int]]:
    """Return the byte ranges of the chunks that hold rows."""
    dataset = file[COLUMNS[0].name]
    if dataset.chunks is None:  # no row was ever written
        return []
    step, inner = dataset.chunks[0], (0,) * (dataset.ndim - 1)
    firsts = np.unique(rows // step * step).tolist()
    infos = (dataset.id.get_chunk_info_by_coord((first, *inner)) for first in firsts)
    return [(info.byte_offset, info.byte_offset + info.size) for info in infos if info.size]


def _require_format(path: Path, file: h5py.File) -> None:
    """Raise if the file states another format, such as that of embedding files."""
    stated = file.attrs.get("format", FORMAT)
    if isinstance(stated, str) and stated != FORMAT:
        raise DamagedShard(
            f"{path} has the format {stated!r}, not {FORMAT!r}; pass a feature folder, or a shard "
            "that `pipeline extract` or `text` wrote"
        )
