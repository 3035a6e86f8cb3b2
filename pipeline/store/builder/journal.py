"""Finished rows of an unfinished shard: one append-only file per writer.

The first line is JSON: the fingerprint of the work, and the metadata of the features. A record has
a mark, the CRC-32 of its columns and texts, the columns, id, reason and features. Rows are
identified by id, and a reader continues at the next mark: a record that a kill has torn, or that is
damaged, loses its own row alone.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.store.files import flush_entries
from pipeline.store.hashing import canonical_json
from pipeline.store.packed import PackedTexts
from pipeline.store.schema import decode
from pipeline.store.shards.format import DamagedShard, FeatureHeader, OtherShard, StoredBlock
from pipeline.store.shards.layout import CRC32, source_columns, stored_dtype
from pipeline.store.shards.writer import PatientFile, explained

# As in PNG: a byte that no UTF-8 text contains, and line ends that a conversion of texts changes.
_MARK = b"\xffrow\r\n\x1a\n"
_CHECK = struct.Struct("<I")


def append_rows(
    path: Path,
    fingerprint: str,
    header: FeatureHeader,
    blocks: Iterable[tuple[Sequence[str], StoredBlock]],
) -> None:
    """Append finished rows, as blocks with their ids, and flush them to the disk."""
    parts: list[bytes] = []
    for ids, block in blocks:
        columns = np.zeros(len(block), _columns())
        for name, values in {"status": block.status, CRC32: block.crc32, **block.sources}.items():
            columns[name] = values
        for row, (row_id, reason) in enumerate(zip(ids, block.errors, strict=True)):
            texts = row_id.encode(), reason.encode()
            columns["id"][row], columns["reason"][row] = map(len, texts)
            checked = columns[row].tobytes() + b"".join(texts)
            check = _CHECK.pack(zlib.crc32(checked))
            parts += _MARK, check, checked, block.features[row].tobytes()
    with explained(path), PatientFile(path, "a") as stream:
        new = not path.stat().st_size
        if new:
            about = {"work": fingerprint, "features": header.metadata()}
            parts.insert(0, canonical_json(about).encode() + b"\n")
        stream.write(b"".join(parts))
        stream.require_written()
        os.fsync(stream.fileno())
        if new:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                flush_entries(folder)
            finally:
                os.close(folder)


def _columns() -> np.dtype:
    """Return the packed columns of a record; those of the texts are their lengths in bytes."""
    texts, sources = [("id", "<u4"), ("reason", "<u4")], source_columns()
    described = [(column.key, column.dtype) for column in sources]
    return np.dtype([*texts, ("status", "u1"), *described, (CRC32, "<u4")])


@dataclass(frozen=True)
class _FirstLine:
    work: str
    features: dict[str, Any]


class Journal:
    """The intact rows of a journal, with the columns of a `ShardFile`."""

    def __init__(self, path: Path, header: FeatureHeader) -> None:
        """Read and verify all records; raise `DamagedShard` or `OtherShard` for the first line."""
        self.path = path
        self.work = ""  # fingerprint
        self.damaged = False  # a record before an intact one is
        self._data: Any = b""
        self._dtype, self._shape = stored_dtype(header), header.row_shape
        self._values = int(np.prod(header.row_shape, dtype=np.int64))
        with path.open("rb") as stream:
            first = stream.readline()
            # Without a whole first line, a kill has left the file before its first row.
            if first.endswith(b"\n"):
                self._read_first_line(first, header)
                self._data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        records: list[Any] = [*zip(*self._records(len(first)), strict=True)] or [()] * 4
        columns = np.frombuffer(b"".join(records[0]), _columns())
        self.ids: Sequence[str] = PackedTexts(records[1])
        self.errors: Sequence[str] = records[2]
        self.status: np.ndarray = columns["status"]
        self.crc32: np.ndarray = columns[CRC32]
        self.sources: dict[str, np.ndarray] = {c.key: columns[c.key] for c in source_columns()}
        self._offsets = records[3]

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (len(rows), *row_shape); their CRC-32 was checked on opening."""
        stored = np.empty((len(rows), self._values), self._dtype)
        for position, row in enumerate(rows):
            offset = self._offsets[row]
            stored[position] = np.frombuffer(self._data, self._dtype, self._values, offset)
        return stored.reshape(len(rows), *self._shape)

    def _read_first_line(self, line: bytes, header: FeatureHeader) -> None:
        try:
            about = decode(line, _FirstLine)
        except ValueError as error:
            raise DamagedShard(f"{self.path}: its first line is damaged ({error})") from error
        self.work = about.work
        shape = tuple(about.features.get("row_shape", ()))
        if unlike := header.difference(about.features | {"row_shape": shape}):
            raise OtherShard(f"{self.path} {unlike}")

    def _records(self, start: int) -> Iterator[tuple[bytes, str, str, int]]:
        """Yield columns, id, reason and offset of the features of each intact record."""
        view, kinds, at, end = memoryview(self._data), _columns(), start, start
        while (at := self._data.find(_MARK, at)) >= 0:
            columns = at + len(_MARK) + _CHECK.size
            texts = columns + kinds.itemsize
            at += 1
            if texts > len(view):
                continue
            (check,) = _CHECK.unpack_from(view, columns - _CHECK.size)
            (values,) = np.frombuffer(view, kinds, 1, columns)
            reason = texts + int(values["id"])
            features = reason + int(values["reason"])
            stop = features + self._values * self._dtype.itemsize
            if (
                stop > len(view)
                or zlib.crc32(view[columns:features]) != check
                or zlib.crc32(view[features:stop]) != values[CRC32]
            ):
                continue
            self.damaged |= at - 1 != end
            row_id, why = str(view[texts:reason], "utf-8"), str(view[reason:features], "utf-8")
            yield bytes(view[columns:texts]), row_id, why, features
            at = end = stop
