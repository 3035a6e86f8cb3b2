"""Feature sets from arrays, and from any function that gives rows by number."""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.files import created_by
from pipeline.hashing import canonical_json
from pipeline.one_or_many import texts_of
from pipeline.packed import PackedTexts
from pipeline.progress import Progress, Stopwatch, no_progress
from pipeline.shards.format import (
    OK,
    STATUS_NAMES,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardError,
    require_usable_ids,
)
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.shards.resume.compute import build_here
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.shards.writer import stored_rows

UNKNOWN_SHA256 = "0" * 64

# The axes of a set whose rows have this many, as the files of the field have them.
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
    """Write anybody's array as a feature set, which verifies, resumes and merges as all others do.

    The same arguments give the same bytes, and leave a finished set as it is. An interrupted call
    goes on where it was when it is made again.

    Parameters
    ----------
    out : str or Path. Folder of the shards.
    ids : sequence of str. (n,) a unique relative path for each row, such as the ids of a dataset.
    array : array_like. (n, ...) floating point numbers: nested lists, or anything with `shape`,
        `dtype` and slices, such as an array, a `numpy.memmap` or an h5py dataset, of which some
        MiB are read at a time. float16 and float32 are stored as they are, float64 as float32.
    recipe : mapping. JSON values of everything that changes a feature, with at least a "name".
    status : sequence of int or None. (n,) 0 where a row has features; 1 unreadable, 2 missing,
        3 refused. None: all 0.
    errors : sequence of str or None. (n,) why a row failed, "" where it did not. None: the name of
        its status.
    weights, weights_sha256 : str. Name and SHA-256 (64 hex digits) of the network's weights.
    trained_on : sequence of str. Names of the datasets that the weights were trained on.
    dataset : str. Name of the dataset that the ids belong to.
    axes : str or None. Names of the axes, separated by commas. None: by their number.
    rows_per_shard : int or None. None: what fits in 1 GiB, at most 65,536.
    compress : bool. gzip in small chunks: smaller, slower to read at random.
    progress : callable. Called with rows done, rows in all, and 0.

    Returns
    -------
    FeatureIndex
        Of the finished set.

    Raises
    ------
    ShardError
        Lengths differ, ids repeat or are unusable, values are no floats or not finite where the
        status is 0, or the recipe has no name; nothing is written.
    OtherShard
        The output holds another feature set, other rows, or other values.

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
            f"{len(ids)} ids were given for {len(source)} rows; give one id for each row, and at "
            "least one row"
        )
    require_usable_ids(ids, "the ids given")
    if not re.fullmatch(r"[0-9a-f]{64}", weights_sha256):
        raise ShardError(
            f"weights_sha256 is {weights_sha256!r}; give the SHA-256 of the weights' file as 64 "
            "hex digits, or leave it out"
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
    """Build and publish a feature set; a run that was stopped goes on where it was.

    Parameters
    ----------
    out, header, ids, rows_per_shard, compress, inputs : see `ShardBuild`.
    rows : gives rows `start` to `stop` - 1, both in one shard and about 16 MiB at most.
    progress : called with rows done, rows in all, and 0.
    compare : refuse an output whose finished shards hold other values than `rows` gives.

    Raises
    ------
    ShardError
        See `ShardBuild`.
    """
    size = max(1, _BLOCK_BYTES // max(1, header.row_bytes))
    with ShardBuild(out, header, ids, rows_per_shard, compress, inputs) as build:
        if compare:
            _require_same_values(build, header, rows, size, out)

        def compute(spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
            for part in (part for span in spans for part in span.batches(size)):
                yield part.start, rows(part.start, part.stop)

        return build_here(build, compute, progress)


def axes_of(row_shape: tuple[int, ...], axes: str | None, what: str) -> str:
    """Return the names of the axes of a feature set, "row" first.

    Parameters
    ----------
    row_shape : of one row.
    axes : names that were given, separated by commas. None: as the files of the field have them.
    what : has these rows, for the message.

    Raises
    ------
    ShardError
        Another number of names than of axes, or more axes than have default names.
    """
    names = axes or _AXES.get(len(row_shape))
    if names is None or len(names.split(",")) != len(row_shape) + 1:
        raise ShardError(
            f"rows of {what} have shape {row_shape}, which axes {names!r} do not fit; give a name "
            "for the rows and for each axis, separated by commas"
        )
    return names


def _sliceable(array: Any) -> Any:
    """Return something with `shape`, `dtype` and slices that holds rows of floats."""
    if not (hasattr(array, "shape") and hasattr(array, "dtype")):
        try:
            array = np.asarray(array)
        except ValueError as error:
            raise ShardError(
                f"the array is no array of numbers ({error}); give rows of one shape"
            ) from error
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise ShardError(
            f"the array holds {array.dtype}; floating point numbers of at most 64 bits were "
            'expected: convert it, as by array.astype("float32")'
        )
    if len(array.shape) < 2 or 0 in array.shape[1:]:
        raise ShardError(
            f"the array has shape {tuple(array.shape)}; (rows, dim) or more axes were expected, "
            "none of them empty: reshape it, as by array.reshape(len(array), -1)"
        )
    return array


def _columns(
    rows: int, status: Sequence[int] | np.ndarray | None, errors: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return status (rows,) uint8 and error texts that agree with each other."""
    codes = np.zeros(rows, np.int64) if status is None else np.asarray(status)
    if codes.shape != (rows,) or (errors is not None and len(errors) != rows):
        raise ShardError(
            f"status of shape {codes.shape} and {len(errors or ())} errors were given for {rows} "
            "rows; give one of each for every row, or leave them out"
        )
    if unknown := sorted({*codes.tolist()} - {*STATUS_NAMES}):
        names = ", ".join(f"{code} {name}" for code, name in STATUS_NAMES.items())
        raise ShardError(f"status {unknown[0]!r} is unknown; give {names}")
    if errors is None:
        errors = ["" if code == OK else STATUS_NAMES[code] for code in codes.tolist()]
    for row, (code, reason) in enumerate(zip(codes.tolist(), errors, strict=True)):
        if (code == OK) == bool(reason):
            raise ShardError(
                f"row {row} has status {code} ({STATUS_NAMES[code]}) and error {reason!r}; give "
                "an error just where the status is not 0"
            )
    return codes.astype(np.uint8), tuple(errors)


def _checked_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    name = recipe.get("name")
    if not isinstance(name, str) or not name:
        raise ShardError(
            f"the recipe has name {name!r}; give one that says how the features were made, as in "
            '{"name": "mine"}'
        )
    try:
        canonical_json(dict(recipe))
    except (TypeError, ValueError) as error:
        raise ShardError(
            f"the recipe {name!r} is not made of JSON values ({error}); use texts, numbers, lists "
            "and dicts"
        ) from error
    return dict(recipe)


def _require_finite(header: FeatureHeader, block: RowBlock, ids: Sequence[str]) -> None:
    with np.errstate(over="ignore"):
        stored = block.features.astype(header.dtype).reshape(len(block), -1)
    finite = np.isfinite(stored).all(axis=1)
    wrong = np.flatnonzero(~finite & (block.status == OK))
    if wrong.size:
        raise ShardError(
            f"rows of {[ids[row] for row in wrong[:5]]} hold NaN, infinities or values beyond "
            f"{header.dtype}; mend them, or mark them as failed by their status"
        )


def _require_same_values(
    build: ShardBuild,
    header: FeatureHeader,
    rows: Callable[[int, int], RowBlock],
    size: int,
    out: str | Path,
) -> None:
    """Refuse finished shards that hold other values or failures."""
    for span, shard in build.finished_files():
        for part in span.batches(size):
            block, ids = rows(part.start, part.stop), build.ids[part.start : part.stop]
            here = slice(part.start - span.start, part.stop - span.start)
            crc32 = [zlib.crc32(row) for row in stored_rows(header, block, ids)]
            other = (shard.crc32[here] != crc32) | (shard.status[here] != block.status)
            if other.any():
                raise OtherShard(
                    f"{out} holds other values for id {ids[int(np.argmax(other))]!r} under the "
                    f"recipe {header.recipe['name']!r}; give the recipe another name and the "
                    f"features another folder, or remove {out} if they may go"
                )
