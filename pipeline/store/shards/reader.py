"""Reading one shard: structure, single rows, and verification of every byte."""

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline.store.files import require_held
from pipeline.store.hashing import canonical_json, sha256_of_file
from pipeline.store.packed import PackedTexts
from pipeline.store.shards.format import (
    FORMAT,
    OK,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    ShardEntry,
    ShardError,
)
from pipeline.store.shards.layout import (
    COLUMNS,
    CRC32,
    ERROR,
    FEATURES,
    IDS,
    REQUIRED_TEXTS,
    SOURCE_CRC32,
    STATUS,
)

# Small enough for a core's cache, since every row is read several times.
_READ_ROWS_BYTES = 1 << 21
# Exceptions of h5py and numpy on corrupt files; MemoryError if a size field is absurd.
_UNREADABLE = (
    OSError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
    OverflowError,
    MemoryError,
)


class ShardFile:
    """One shard opened for reading, safe in threads, after a fork and, pickled, in spawned workers.

    The constructor checks the structure, `inspect` every byte.
    """

    def __init__(self, path: str | Path) -> None:
        """Read everything except the features; raise `DamagedShard` if the structure is invalid."""
        self.path = path = Path(path)
        # The file is closed after each call: an open HDF5 file must not be used after a fork.
        try:
            with h5py.File(path, "r") as file:
                _require_format(path, file)
                features = _own_dataset(file, FEATURES)
                columns = {name: _own_dataset(file, name) for name in COLUMNS}
                shapes = {column.shape for column in columns.values()}
                self.attributes: dict[str, Any] = {
                    k: v if isinstance(v, str) else int(v) for k, v in file.attrs.items()
                }
                self.ids: Sequence[str] = PackedTexts(columns[IDS].asstr()[()])
                self.errors: list[str] = list(columns[ERROR].asstr()[()])
                self.status: np.ndarray = columns[STATUS][()]
                self.crc32: np.ndarray = columns[CRC32][()]
                self.source_crc32: np.ndarray = columns[SOURCE_CRC32][()]
                self.row_shape: tuple[int, ...] = features.shape[1:]
                self.dtype: np.dtype = features.dtype
                self.rows: int = features.shape[0]
                self._offset: int | None = features.id.get_offset()
            if self.dtype.kind != "f" or self.rows < 1:
                raise ValueError(f"found {self.rows} rows of {self.dtype}, expected rows of floats")
            if absent := [name for name in REQUIRED_TEXTS if name not in self.attributes]:
                raise KeyError(f"missing attributes {absent}")
            texts = {name: self.attributes[name] for name in REQUIRED_TEXTS}
            if numbers := [name for name, text in texts.items() if not isinstance(text, str)]:
                raise ValueError(f"attributes {numbers} are not text")
            if shapes != {(self.rows,)}:
                raise ValueError(f"{self.rows} feature rows, but columns of shape {sorted(shapes)}")
        except _UNREADABLE as error:
            _refuse_unreadable(path, error)
            raise DamagedShard(
                f"{path} is not a valid feature shard ({error}); copy it again, or rerun the "
                "command that wrote it, which recomputes only this shard"
            ) from error
        self._checked = np.zeros(self.rows, bool)
        self._map: tuple[int, np.ndarray] | None = None

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
        try:
            if self._offset is not None:
                return self._mapped()[rows]
            with h5py.File(self.path, "r") as file:
                dataset = file[FEATURES]
                stored = np.empty((len(rows), *self.row_shape), self.dtype)
                for position, row in enumerate(rows):
                    dataset.read_direct(stored, np.s_[int(row)], np.s_[position])
                return stored
        except _UNREADABLE as error:
            _refuse_unreadable(self.path, error)
            raise DamagedShard(
                f"{self.path}: cannot read the features ({error}); copy the file again or rerun "
                "the command that wrote it"
            ) from error

    def view(self, rows: np.ndarray) -> np.ndarray:
        """Return what `stored` does, read-only: rows of the mapped file if they are consecutive."""
        if self._offset is None or not (np.diff(rows) == 1).all():
            return self.stored(rows)
        return self._mapped()[rows[0] : rows[-1] + 1]

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return stored rows (len(rows), *row_shape), each checked by CRC-32 on its first read."""
        stored = self.stored(rows)
        self._check(rows, stored)
        return stored

    def _check(self, rows: np.ndarray, stored: np.ndarray) -> None:
        for position in np.flatnonzero(~self._checked[rows]):
            row = int(rows[position])
            if zlib.crc32(stored[position]) != self.crc32[row]:
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
                nan = np.isnan(stored.reshape(len(rows), -1))
                if (nan.any(axis=1) != (self.status[rows] != OK)).any():
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
        if unlike := header.difference(self.metadata()):
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


def _require_format(path: Path, file: h5py.File) -> None:
    """Raise if the file states another format, such as that of embedding files."""
    stated = file.attrs.get("format", FORMAT)
    if isinstance(stated, str) and stated != FORMAT:
        raise DamagedShard(
            f"{path} has the format {stated!r}, not {FORMAT!r}; pass a feature folder, or a shard "
            "that `pipeline extract` or `text` wrote"
        )


def _own_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset that is stored inside this file and fits into it."""
    # An external or virtual dataset could expose any file that the reader may open. Check the link
    # first: resolving its target would open it.
    link = file.get(name, getlink=True)
    if link is None:
        raise KeyError(f"dataset {name!r} is missing")
    if isinstance(link, h5py.HardLink):
        dataset = file[name]
        if not (dataset.is_virtual or dataset.external):
            return require_held(dataset)
    raise ValueError(
        f"{name!r} is stored in other files, as in a view of shards; verify and read those"
    )


def _refuse_unreadable(path: Path, error: Exception) -> None:
    """Raise if the operating system refused the read, which is not evidence of corruption."""
    if isinstance(error, OSError) and error.errno is not None:
        raise ShardError(
            f"{path} cannot be read ({os.strerror(error.errno)}); check its permissions and the "
            "disk; nothing was changed"
        ) from error
