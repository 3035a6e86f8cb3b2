"""Row sources in layouts of other programs, and their conversion to a feature set."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pipeline.store.builder.arrays import UNKNOWN_SHA256, axes_of, build_from_rows
from pipeline.store.files import created_by
from pipeline.store.guard import crashes_of
from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.progress import Progress, no_progress
from pipeline.store.shards.format import OK, FeatureHeader, RowBlock, ShardError, require_usable_ids
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.layout import out_of_range

# HDF5 needs up to 0.4 ms for a group of 1 kB, so more per byte than for a shard.
_GROUPS_SLOWER = 5


def require_unbroken_groups(path: Path, read: Callable[..., object], *arguments: str) -> None:
    """Raise if a file of groups hangs or crashes HDF5 when another process calls `read` on it."""
    size = path.stat().st_size if path.is_file() else 0
    for reason in crashes_of(read, [(path, _GROUPS_SLOWER * size)], *arguments).values():
        raise ShardError(f"{path} is damaged: HDF5 {reason}; copy it again")


class ImportSource(Protocol):
    """Feature rows in a foreign layout.

    Attributes
    ----------
    layout, file : str. Name of the layout, and of the file or folder.
    sha256 : str. SHA-256 of the file, or of the canonical JSON of {name: SHA-256} of a folder.
    ids : sequence of str. All row ids, in order.
    row_shape, dtype : tuple of int, dtype. Shape and dtype of a row in the source.
    """

    layout: str
    file: str
    sha256: str
    ids: Sequence[str]
    row_shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to `stop` - 1, (stop - start, *row_shape)."""

    def where(self, row: int) -> str:
        """Return the location of a row in its source, for messages."""


def import_rows(
    source: ImportSource,
    out: str | Path,
    dataset: str,
    ids: Sequence[str] | None = None,
    *,
    array: str = "",
    note: str = "",
    axes: str | None = None,
    rows_per_shard: int | None = None,
    compress: bool = False,
    progress: Progress = no_progress,
) -> FeatureIndex:
    """Write the rows of a source as a feature set; `import_features` documents its metadata.

    `ids`: others than those of the source; `array`: its name, unless it is the default.
    """
    ids = source.ids if ids is None else ids
    require_usable_ids(ids, source.file)
    if 0 in source.row_shape:
        raise ShardError(
            f"{source.file} has rows of shape {source.row_shape}, which hold no numbers; name "
            "another array (`array=...`)"
        )
    header = _header(source, dataset, array, note, axes)
    ok = np.array([OK], np.uint8)

    def rows(start: int, stop: int) -> RowBlock:
        features = source.read(start, stop)
        with np.errstate(over="ignore"):
            stored = features.astype(header.dtype)
        for row in (start + np.flatnonzero(out_of_range(features, stored))).tolist():
            raise ShardError(
                f"{source.where(row)}, id {ids[row]!r}: holds infinities, NaN or values "
                f"outside {header.dtype}; remove the row or fix it"
            )
        return RowBlock(stored, np.repeat(ok, stop - start), ("",) * (stop - start))

    return build_from_rows(
        out,
        header,
        ids,
        rows,
        rows_per_shard=rows_per_shard,
        compress=compress,
        progress=progress,
    )


def _header(
    source: ImportSource, dataset: str, array: str, note: str, axes: str | None
) -> FeatureHeader:
    recipe: dict[str, Any] = {
        "name": "imported",
        "source_format": source.layout,
        "source_file": source.file,
        "source_sha256": source.sha256,
        "source_dtype": source.dtype.name,
    }
    if array:
        recipe["source_array"] = array
    if note:
        recipe["note"] = note
    return FeatureHeader(
        recipe=recipe,
        weights="unknown",
        weights_sha256=UNKNOWN_SHA256,
        axes=axes_of(source.row_shape, axes, source.file),
        dataset=dataset,
        row_shape=source.row_shape,
        dtype="float16" if source.dtype == np.float16 else "float32",
        created_by=created_by("numpy", "h5py"),
    )


def require_floats(dtype: np.dtype, where: str) -> np.dtype:
    """Return the dtype if it is a float of at most 64 bits; raise otherwise."""
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ShardError(f"{where} holds {dtype}, expected floating point numbers")
    return dtype


def sha256_of_files(folder: Path, names: Sequence[str]) -> str:
    """Return the SHA-256 of the canonical JSON of {name: SHA-256} of the files of a folder."""
    return sha256_of_json({name: sha256_of_file(folder / name) for name in names})
