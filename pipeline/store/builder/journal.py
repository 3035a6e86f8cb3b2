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
from typing import Any, NamedTuple

import numpy as np

from pipeline.store.hashing import canonical_json
from pipeline.store.packed import PackedTexts
from pipeline.store.schema import decode
from pipeline.store.shards.format import DamagedShard, FeatureHeader, OtherShard, StoredBlock
from pipeline.store.shards.layout import source_columns, stored_dtype
from pipeline.store.shards.writer import PatientFile, explained

# As in PNG: a byte that no UTF-8 text contains, and line ends that a conversion of texts changes.
_MARK = b"\xffrow\r\n\x1a\n"
_CHECK = struct.Struct("<I")
# Bytes of id and reason, and the status; then the columns of the source, and the CRC-32 of the
# features.
_COLUMNS, _CRC32 = struct.Struct("<IIB"), struct.Struct("<I")


def append_rows(
    path: Path,
    fingerprint: str,
    header: FeatureHeader,
    blocks: Iterable[tuple[Sequence[str], StoredBlock]],
) -> None:
    """Append finished rows, as blocks with their ids, and flush them to the disk."""
    parts: list[bytes] = []
    for ids, block in blocks:
        sources = np.zeros(len(block), _sources_dtype())
        for name, values in block.sources.items():
            sources[name] = values
        for row, (row_id, reason) in enumerate(zip(ids, block.errors, strict=True)):
            texts = row_id.encode(), reason.encode()
            numbers = _COLUMNS.pack(*map(len, texts), int(block.status[row]))
            numbers += sources[row].tobytes() + _CRC32.pack(block.crc32[row])
            checked = numbers + b"".join(texts)
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
            # The name is an entry of the folder, which has a flush of its own.
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _sources_dtype() -> np.dtype:
    """Return the columns that describe the source of a row as one packed dtype."""
    return np.dtype([(column.key, column.dtype) for column in source_columns()])


@dataclass(frozen=True)
class _FirstLine:
    work: str
    features: dict[str, Any]


class _Record(NamedTuple):
    """An intact record, with the offset of its features."""

    id: str
    reason: str
    status: int
    sources: bytes
    crc32: int
    features: int
    stop: int


class Journal:
    """The intact rows of a journal, with the columns of a `ShardFile`."""

    def __init__(self, path: Path, header: FeatureHeader) -> None:
        """Read and verify all records; raise `DamagedShard` or `OtherShard` for the first line."""
        self.path = path
        self.work = ""  # fingerprint
        self.damaged = False  # a record before an intact one is
        self._data: Any = b""
        self._dtype, self._shape = stored_dtype(header), header.row_shape
        self._sources = _sources_dtype()
        self._values = int(np.prod(header.row_shape, dtype=np.int64))
        with path.open("rb") as stream:
            first = stream.readline()
            # Without a whole first line, a kill has left the file before its first row.
            if first.endswith(b"\n"):
                self._read_first_line(first, header)
                self._data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        records = [*self._records(len(first))]
        self.ids: Sequence[str] = PackedTexts(record.id for record in records)
        self.errors: list[str] = [record.reason for record in records]
        self.status: np.ndarray = np.array([record.status for record in records], np.uint8)
        sources = np.frombuffer(b"".join(r.sources for r in records), self._sources)
        self.sources: dict[str, np.ndarray] = {n: sources[n] for n in self._sources.fields or {}}
        self.crc32: np.ndarray = np.array([record.crc32 for record in records], np.uint32)
        self._offsets = [record.features for record in records]

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

    def _records(self, start: int) -> Iterator[_Record]:
        """Yield the intact records."""
        view, at, stop = memoryview(self._data), start, start
        while (at := self._data.find(_MARK, at)) >= 0:
            record = self._record(view, at)
            if record is None:
                at += 1
            else:
                self.damaged |= at != stop
                yield record
                at = stop = record.stop

    def _record(self, view: memoryview, start: int) -> _Record | None:
        """Return the record that begins at an offset; None if it is torn or damaged."""
        columns = start + len(_MARK) + _CHECK.size
        at_sources = columns + _COLUMNS.size
        at_crc32 = at_sources + self._sources.itemsize
        texts = at_crc32 + _CRC32.size
        if texts > len(view):
            return None
        (check,) = _CHECK.unpack_from(view, start + len(_MARK))
        id_bytes, reason_bytes, status = _COLUMNS.unpack_from(view, columns)
        (crc32,) = _CRC32.unpack_from(view, at_crc32)
        reason, features = texts + id_bytes, texts + id_bytes + reason_bytes
        stop = features + self._values * self._dtype.itemsize
        if (
            stop > len(view)
            or zlib.crc32(view[columns:features]) != check
            or zlib.crc32(view[features:stop]) != crc32
        ):
            return None
        return _Record(
            str(view[texts:reason], "utf-8"), str(view[reason:features], "utf-8"),
            status, bytes(view[at_sources:at_crc32]), crc32, features, stop,
        )  # fmt: skip
