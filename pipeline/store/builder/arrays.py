"""Feature sets from arrays, or from a function of row numbers."""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.files import created_by
from pipeline.store.hashing import canonical_json
from pipeline.store.one_or_many import texts_of
from pipeline.store.packed import PackedTexts
from pipeline.store.progress import Progress, Stopwatch, no_progress
from pipeline.store.shards.format import (
    OK,
    STATUS_NAMES,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardError,
    require_usable_ids,
)
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.layout import out_of_range
from pipeline.store.shards.plan import Span
from pipeline.store.shards.writer import stored_rows

UNKNOWN_SHA256 = "0" * 64

# Default axes by their number, as common feature files have them.
_AXES = {1: "row, channel", 2: "row, region, channel", 3: "row, cell_y, cell_x, channel"}
_BLOCK_BYTES = 1 << 24


def write_features(
    out: str | Path,
    ids: Sequence[str],
    array: "npt.ArrayLike",
    *,
    recipe: Mapping[str, Any],
    status: Sequence[int] | np.ndarray | None = None,
    errors: Sequence[str] | None = None,
    weights: str = "unknown",
    weights_sha256: str = UNKNOWN_SHA256,
    trained_on: Sequence[str] = (),
    dataset: str = "",
    axes: str | None = None,
    rows_per_shard: int | None = None,
    compress: bool = False,
    progress: Progress = no_progress,
) -> FeatureIndex:
    """Write an array as a feature set, which can be verified, resumed and merged like any other.

    Equal arguments produce equal bytes and leave a finished set unchanged. An interrupted call
    resumes when it is repeated.

    Parameters
    ----------
    out : str or Path. Folder of the shards.
    ids : sequence of str. (n,) a unique relative path for each row, such as the ids of a dataset.
    array : array_like. (n, ...) floating point numbers: nested lists, or any object with `shape`,
        `dtype` and slices, such as a `numpy.memmap` or an h5py dataset, which is read a few MiB at
        a time. float16 and float32 are stored unchanged, float64 as float32.
    recipe : mapping. JSON values of everything that changes a feature, with at least a "name".
    status : sequence of int or None. (n,) 0 where a row has features; 1 unreadable, 2 missing,
        3 refused. None: all 0.
    errors : sequence of str or None. (n,) failure reasons, "" where the status is 0. None: the name
        of the status.
    weights, weights_sha256 : str. Name and SHA-256 (64 hex digits) of the network weights.
    trained_on : sequence of str. Names of the training datasets of the weights.
    dataset : str. Name of the dataset of the ids.
    axes : str or None. Comma-separated names of the axes; None: the default for their number.
    rows_per_shard : int or None. Rows per shard; None: as many as fit into 256 MiB, at most 65,536.
    compress : bool. Store features in small gzip chunks: smaller files, slower random access.
    progress : callable. Called with (rows done, total rows, 0).

    Returns
    -------
    FeatureIndex
        Index of the finished set.

    Raises
    ------
    ShardError
        Lengths differ, ids repeat or are invalid, values are not floats or not finite where the
        status is 0, or the recipe has no name; nothing is written.
    OtherShard
        The output holds another feature set, other rows or other values.

    Examples
    --------
    >>> rows = np.eye(2, dtype=np.float32)
    >>> write_features("out", ["a.jpg", "b.jpg"], rows, recipe={"name": "mine"}).rows
    2
    """
    source = _sliceable(array)
    ids = PackedTexts(texts_of(ids, "id")[0])
    if len(ids) != len(source) or not ids:
        raise ShardError(
            f"found {len(ids)} ids for {len(source)} rows; pass one id per row, and at least one "
            "row"
        )
    require_usable_ids(ids, "argument ids")
    if not re.fullmatch(r"[0-9a-f]{64}", weights_sha256):
        raise ShardError(
            f"weights_sha256 is {weights_sha256!r}, expected 64 hex digits: the SHA-256 of the "
            "weights file; or omit it"
        )
    codes, reasons = _columns(len(ids), status, errors)
    header = FeatureHeader(
        recipe=_checked_recipe(recipe),
        weights=weights,
        weights_sha256=weights_sha256,
        axes=axes_of(source.shape[1:], axes, "the array"),
        dataset=dataset,
        row_shape=tuple(source.shape[1:]),
        dtype="float16" if source.dtype == np.float16 else "float32",
        created_by=created_by("numpy", "h5py"),
        trained_on=tuple(trained_on),
    )

    def rows(start: int, stop: int) -> RowBlock:
        return RowBlock(np.asarray(source[start:stop]), codes[start:stop], reasons[start:stop])

    # Unfinished work on other values must not be resumed: its folder has another fingerprint.
    digest = hashlib.sha256()
    size = max(1, _BLOCK_BYTES // header.row_bytes)
    for part in Span(0, len(ids)).batches(size):
        block = rows(part.start, part.stop)
        _require_finite(header, block, ids[part.start : part.stop])
        digest.update(stored_rows(header, block, ids[part.start : part.stop]).tobytes())
    digest.update(codes.tobytes() + canonical_json(reasons).encode())
    return build_from_rows(
        out,
        header,
        ids,
        rows,
        rows_per_shard=rows_per_shard,
        compress=compress,
        inputs=digest.hexdigest(),
        progress=progress,
        compare=True,
    )


def build_from_rows(
    out: str | Path,
    header: FeatureHeader,
    ids: Sequence[str],
    rows: Callable[[int, int], RowBlock],
    *,
    rows_per_shard: int | None = None,
    compress: bool = False,
    inputs: object = None,
    progress: Progress = no_progress,
    compare: bool = False,
) -> FeatureIndex:
    """Build and publish a set from `rows(start, stop)`, which is called for at most 16 MiB of rows.

    `compare`: raise if finished shards of the output hold other values. The other arguments are
    those of `ShardBuild`.
    """
    size = max(1, _BLOCK_BYTES // max(1, header.row_bytes))
    with ShardBuild(out, header, ids, rows_per_shard, compress, inputs) as build:
        if compare:
            _require_same_values(build, header, rows, size, out)

        def compute(spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
            for part in (part for span in spans for part in span.batches(size)):
                yield part.start, rows(part.start, part.stop)

        return build.fill(compute, progress)


def axes_of(row_shape: tuple[int, ...], axes: str | None, what: str) -> str:
    """Return the comma-separated axis names of a set, "row" first; by default by their number."""
    names = axes or _AXES.get(len(row_shape))
    if names is None or len(names.split(",")) != len(row_shape) + 1:
        raise ShardError(
            f"rows of {what} have shape {row_shape}, which does not match axes {names!r}; pass "
            "comma-separated names, one for the rows and one for each axis"
        )
    return names


def _sliceable(array: Any) -> Any:
    """Return an object with `shape`, `dtype` and slices that holds rows of floats."""
    if isinstance(array, np.ma.MaskedArray):
        raise ShardError("the array is masked; fill it, or mark such rows as failed by `status`")
    # Tensors have dtypes of their own, and sparse arrays no length.
    if not isinstance(getattr(array, "dtype", None), np.dtype) or hasattr(array, "toarray"):
        try:
            array = np.asarray(array)
        except (ValueError, TypeError, RuntimeError) as error:
            raise ShardError(
                f"not an array of numbers ({error}); all rows must have the same shape"
            ) from error
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise ShardError(
            f"the array holds {array.dtype}, expected floats of at most 64 bits: convert it, for "
            'example with array.astype("float32")'
        )
    if len(array.shape) < 2 or 0 in array.shape[1:]:
        raise ShardError(
            f"the array has shape {tuple(array.shape)}, expected (rows, dim, ...) without empty "
            "axes: reshape it, for example with array.reshape(len(array), -1)"
        )
    return array


def _columns(
    rows: int, status: Sequence[int] | np.ndarray | None, errors: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return status (rows,) uint8 and failure reasons that agree."""
    try:
        codes = np.zeros(rows, np.int64) if status is None else np.asarray(status)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ShardError(f"status is not an array ({error}); pass one number per row") from error
    if codes.shape != (rows,) or (errors is not None and len(errors) != rows):
        raise ShardError(
            f"found status of shape {codes.shape} and {len(errors or ())} errors for {rows} rows; "
            "pass one of each per row, or omit them"
        )
    if unknown := sorted({*codes.tolist()} - {*STATUS_NAMES}):
        names = ", ".join(f"{code} {name}" for code, name in STATUS_NAMES.items())
        raise ShardError(f"unknown status {unknown[0]!r}; known: {names}")
    if errors is None:
        errors = ["" if code == OK else STATUS_NAMES[code] for code in codes.tolist()]
    for row, (code, reason) in enumerate(zip(codes.tolist(), errors, strict=True)):
        if (code == OK) == bool(reason):
            raise ShardError(
                f"row {row} has status {code} ({STATUS_NAMES[code]}) and error {reason!r}; pass an "
                "error exactly where the status is not 0"
            )
    return codes.astype(np.uint8), tuple(errors)


def _checked_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    name = recipe.get("name") if isinstance(recipe, Mapping) else None
    if not isinstance(name, str) or not name:
        raise ShardError(
            f"the recipe has name {name!r}; name how the features were computed, for example "
            '{"name": "mine"}'
        )
    try:
        canonical_json(dict(recipe))
    except (TypeError, ValueError) as error:
        raise ShardError(
            f"the recipe {name!r} has values outside JSON ({error}); use strings, numbers, lists "
            "and dicts"
        ) from error
    return dict(recipe)


def _require_finite(header: FeatureHeader, block: RowBlock, ids: Sequence[str]) -> None:
    with np.errstate(over="ignore"):
        stored = block.features.astype(header.dtype)
    wrong = np.flatnonzero(out_of_range(block.features, stored) & (block.status == OK))
    if wrong.size:
        raise ShardError(
            f"rows of {[ids[row] for row in wrong[:5]]} hold NaN, infinities or values outside "
            f"{header.dtype}; fix them, or mark them as failed by their status"
        )


def _require_same_values(
    build: ShardBuild,
    header: FeatureHeader,
    rows: Callable[[int, int], RowBlock],
    size: int,
    out: str | Path,
) -> None:
    """Raise if finished shards hold other values or failures."""
    for span, shard in build.finished_files():
        for part in span.batches(size):
            block, ids = rows(part.start, part.stop), build.ids[part.start : part.stop]
            here = slice(part.start - span.start, part.stop - span.start)
            crc32 = [zlib.crc32(row) for row in stored_rows(header, block, ids)]
            other = (shard.crc32[here] != crc32) | (shard.status[here] != block.status)
            if other.any():
                raise OtherShard(
                    f"{out} holds other values for id {ids[int(np.argmax(other))]!r} under the "
                    f"recipe {header.recipe['name']!r}; use another recipe name and another "
                    f"folder, or delete {out} if it is obsolete"
                )
