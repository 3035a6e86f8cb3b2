"""Views: several feature sets concatenated column-wise, without copying their rows.

A folder with `side-by-side.json` names sets in the same parent folder, the SHA-256 of their
contents and their scaling. `FeatureSet` opens it like any other set.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from pipeline.store.columns import Column
from pipeline.store.files import parse_json, write_json
from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.own_files import reading
from pipeline.store.schema import Natural, Sha256, decode_format
from pipeline.store.shards.format import (
    OK,
    FeatureHeader,
    OtherShard,
    ShardEntry,
    ShardError,
)
from pipeline.store.shards.index import FeatureIndex, read_index
from pipeline.store.shards.layout import source_columns

VIEW_FILE = "side-by-side.json"
_FORMAT, _VERSION = "pipeline-features-side-by-side", 1

SCALINGS = {
    "unit": "each part's row at length 1",
    "none": "not scaled",
}
"""Scalings of the rows of a part, by name. A row of zeros stays zero."""


class ViewPart(Protocol):
    """Protocol of a feature set in a view; `FeatureSet` implements it."""

    folder: Path
    index: FeatureIndex
    ids: Sequence[str]
    status: np.ndarray
    errors: list[str]
    crc32: np.ndarray
    sources: dict[str, np.ndarray]

    def rows_of(self, ids: Sequence[str]) -> np.ndarray: ...
    def read_rows(self, rows: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class View:
    """Contents of `side-by-side.json`."""

    folder: Path
    parts: tuple[Path, ...]  # folders, in column order
    scaling: str  # a name in `SCALINGS`
    index: FeatureIndex  # with one shard entry, which is the JSON file


def is_view(folder: str | Path) -> bool:
    """Return whether a folder is a view, without rows of its own."""
    return (Path(folder) / VIEW_FILE).is_file()


def read_view(folder: str | Path) -> View:
    """Read a `side-by-side.json` and the indexes of its parts; no row is read."""
    folder = Path(folder)
    path = folder / VIEW_FILE
    with reading(path, "a view of feature sets", "rerun the command that wrote it", ShardError):
        stored = decode_format(path.read_bytes(), _Stored, _FORMAT, _VERSION)
        names = [part.folder for part in stored.parts]
        if stored.scaling not in SCALINGS or stored.failed_rows > stored.rows:
            raise ValueError("its scaling or its number of failed rows is invalid")
        if outside := [name for name in names if Path(name).name != name or name == ".."]:
            raise ValueError(f"its part {outside[0]!r} is not in the same parent folder")
    parts = tuple(folder.resolve().parent / name for name in names)
    indexes = [read_index(part) for part in parts]
    for part, index, recorded in zip(parts, indexes, stored.parts, strict=True):
        if index.content_sha256 != recorded.content_sha256:
            raise OtherShard(
                f"{part} has changed since {path} was written; rerun the `pipeline extract` that "
                "wrote it"
            )
    scaling, rows = stored.scaling, stored.rows
    content = _content(scaling, indexes)
    entry = ShardEntry(VIEW_FILE, 0, rows, stored.failed_rows, sha256_of_file(path), content)
    return View(folder, parts, scaling, FeatureIndex(_header(scaling, indexes), rows, (entry,)))


@dataclass(frozen=True)
class _StoredPart:
    folder: str
    recipe_hash: str
    content_sha256: Sha256


@dataclass(frozen=True)
class _Stored:
    """Schema of `side-by-side.json`; `parts` names folders in the same parent."""

    scaling: str
    rows: Natural
    failed_rows: Natural
    parts: Annotated[tuple[_StoredPart, ...], Meta(min_length=2)]


def write_view(folder: str | Path, parts: Sequence[ViewPart], scaling: str) -> FeatureIndex:
    """Write a view that concatenates sets of the same ids; an up-to-date file is kept.

    Rows are vectors, or grids with the same cells, which are concatenated cell by cell.
    """
    folder = Path(folder)
    _require_scaling(scaling)
    _require_fit(folder, parts)
    failed = SideBySideRows(parts, scaling).status != OK
    values = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "scaling": scaling,
        "rows": len(failed),
        "failed_rows": int(failed.sum()),
        "parts": [
            {
                "folder": part.folder.resolve().name,
                "recipe_hash": part.index.header.recipe_hash,
                "content_sha256": part.index.content_sha256,
            }
            for part in parts
        ],
    }
    if not _holds(folder / VIEW_FILE, values):
        write_json(folder / VIEW_FILE, values)
    return read_view(folder).index


def require_same_cells(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless rows, by the name of their set, are vectors or grids with the same cells."""
    (first, expected), *others = shapes.items()
    for name, shape in others:
        if shape[:-1] != expected[:-1] or not shape:
            raise ShardError(
                f"{name} has rows of shape {shape}, {first} of {expected}; expected vectors, or "
                "grids with the same cells"
            )


def require_own_rows(folder: str | Path) -> None:
    """Raise if a folder is a view, where a set with its own rows is needed."""
    if is_view(folder):
        raise ShardError(
            f"{folder} is a view of other feature sets and has no rows of its own; write them "
            f"first with `pipeline shards merge {folder} --out DIR`"
        )


class SideBySideRows:
    """Concatenated rows of several sets, with the interface of one shard."""

    def __init__(self, parts: Sequence[ViewPart], scaling: str) -> None:
        """Join the sets by id; raise if ids or source images differ."""
        self._parts, self._scaling = tuple(parts), scaling
        first = self._parts[0]
        self.ids: Sequence[str] = first.ids
        self.rows: int = len(first.ids)
        for part in self._parts[1:]:
            _require_same_ids(first, part)
        self._order = [part.rows_of(self.ids) for part in self._parts]
        pairs = list(zip(self._parts, self._order, strict=True))
        self.status: npt.NDArray[np.uint8] = np.full(self.rows, OK, np.uint8)
        self.errors: list[str] = [""] * self.rows
        # In reverse, so that a row has the reason of the first set in which it failed.
        for part, rows in reversed(pairs):
            status = part.status[rows]
            for row in np.flatnonzero(status != OK):
                self.errors[row] = f"{part.folder.name}: {part.errors[int(rows[row])]}"
            self.status = np.where(status != OK, status, self.status)
        # Of the parts' values: joined rows are computed, so no stored bytes have a CRC-32.
        parts_crc32 = np.stack([part.crc32[rows] for part, rows in pairs], axis=1)
        crc32 = [zlib.crc32(row.tobytes()) for row in parts_crc32]
        self.crc32: npt.NDArray[np.uint32] = np.array(crc32, np.uint32)
        self.sources: dict[str, npt.NDArray[Any]] = {
            column.key: self._source(column, pairs) for column in source_columns()
        }

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (len(rows), *cells, sum of dims) float32, NaN where one failed in any set."""
        parts = [
            scaled(part.read_rows(order[rows]), self._scaling)
            for part, order in zip(self._parts, self._order, strict=True)
        ]
        joined = np.concatenate(parts, axis=-1)
        joined[self.status[rows] != OK] = np.nan
        return joined

    def _source(self, column: Column, pairs: Sequence[tuple[ViewPart, np.ndarray]]) -> np.ndarray:
        """Return the values (rows,) of the parts that know them; raise if two parts differ."""
        joined: np.ndarray = column.filled(self.rows)
        for part, rows in pairs:
            values = part.sources[column.key][rows]
            known = values != column.fill
            if (other := np.flatnonzero((values != joined) & known & (joined != column.fill))).size:
                raise ShardError(
                    f"{part.folder} and the other parts were computed from different images for "
                    f"{other.size} ids, first {self.ids[other[0]]!r}; rerun `pipeline extract` for "
                    "all of them: it recomputes only those rows"
                )
            joined = np.where(known, values, joined)
        return joined


def _holds(path: Path, values: dict[str, Any]) -> bool:
    try:
        return bool(parse_json(path.read_text(encoding="utf-8")) == values)
    except (OSError, ValueError):
        return False


def scaled(rows: np.ndarray, scaling: str) -> np.ndarray:
    """Return the rows (n, ..., dim) of a part as float32, scaled as a name in `SCALINGS` states."""
    if scaling == "none":
        return rows.astype(np.float32)
    whole = rows.reshape(len(rows), -1).astype(np.float64)
    lengths = np.linalg.norm(whole, axis=1, keepdims=True)
    return (whole / np.where(lengths == 0, 1, lengths)).astype(np.float32).reshape(rows.shape)


def _header(scaling: str, indexes: Sequence[FeatureIndex]) -> FeatureHeader:
    headers = [index.header for index in indexes]
    first = headers[0]
    name = "+".join(str(header.recipe.get("name", "?")) for header in headers)
    dim = sum(header.row_shape[-1] for header in headers)
    recipe = {
        "name": name if scaling == "unit" else f"{scaling}:{name}",
        "parts": [header.recipe for header in headers],
        "scaling": SCALINGS[scaling],
        "dim": dim,
    }
    return FeatureHeader(
        recipe=recipe,
        weights="; ".join(header.weights for header in headers),
        weights_sha256=sha256_of_json([header.weights_sha256 for header in headers]),
        axes=first.axes,
        dataset=first.dataset,
        row_shape=(*first.row_shape[:-1], dim),
        dtype="float32",
        created_by="; ".join(dict.fromkeys(header.created_by for header in headers)),
        trained_on=tuple(dict.fromkeys(name for h in headers for name in h.trained_on)),
    )


def _content(scaling: str, indexes: Sequence[FeatureIndex]) -> str:
    return sha256_of_json({"scaling": scaling, "parts": [i.content_sha256 for i in indexes]})


def _require_scaling(scaling: str) -> None:
    if scaling not in SCALINGS:
        raise ShardError(f"unknown scaling {scaling!r}; known: {', '.join(SCALINGS)}")


def _require_fit(folder: Path, parts: Sequence[ViewPart]) -> None:
    """Raise if the parts cannot be concatenated or the folder holds something else."""
    names = [part.folder.resolve().name for part in parts]
    if len(parts) < 2 or len({*names}) < len(names):
        raise ShardError(
            f"found {', '.join(names) or 'nothing'}; expected at least two different feature sets"
        )
    here, first = folder.resolve().parent, parts[0].index.header
    require_same_cells({str(part.folder): part.index.header.row_shape for part in parts})
    for part in parts:
        if part.folder.resolve().parent != here:
            raise ShardError(
                f"{part.folder} is not in the parent folder of {folder}; move it there"
            )
        if part.index.header.dataset != first.dataset:
            raise ShardError(
                f"{part.folder} belongs to the dataset {part.index.header.dataset!r}, "
                f"{parts[0].folder} to {first.dataset!r}"
            )
    if list(folder.glob("shard-*.h5")):
        raise OtherShard(f"{folder} holds shards; choose another output folder")


def _require_same_ids(first: ViewPart, other: ViewPart) -> None:
    if first.ids != other.ids and (different := {*first.ids} ^ {*other.ids}):
        raise ShardError(
            f"{first.folder} and {other.folder} have different rows: {len(different)} ids are in "
            f"only one of them, first {min(different)!r}; extract the missing ones"
        )
