"""Kerchunk references: a feature set as one Zarr group, whose chunks are byte ranges of its shards.

By version 1 of the specification, https://fsspec.github.io/kerchunk/spec.html, with the metadata of
Zarr version 2. Rules ("gen") in place of one reference for each chunk keep the file small.
"""

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.store.columns import TEXT, Column
from pipeline.store.files import write_json
from pipeline.store.hashing import canonical_json
from pipeline.store.objects.urls import url_of
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import ShardError
from pipeline.store.shards.layout import COLUMNS, FEATURES, axis_names
from pipeline.store.shards.reader import Place, ShardFile
from pipeline.store.shards.side_by_side import require_own_rows

_CHUNK_BYTES = 1 << 22
_INLINE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Shard:
    number: int
    shards: int  # at its creation, as its name has it
    first_row: int
    rows: int
    size: int  # of the file, in bytes
    places: dict[str, Place]


def export_references(features: FeatureSet, out: Path, url: str | None = None) -> None:
    """Write references to all rows of a set whose shards are in the folder or URL `url`.

    Every column is an array over all shards. Those that the shards do not have as bytes of one type
    (texts of different lengths, failure reasons) are in the file itself, compressed.
    """
    require_own_rows(features.folder)
    plan, shards = features.index.plan(), []
    for number, entry in enumerate(features.index.shards):
        size, places = ShardFile(features.folder / entry.file, entry.sha256).places()
        if places[FEATURES].offset is None:
            raise ShardError(
                f"{features.folder} is compressed, in chunks that no rule can refer to; write it "
                f"uncompressed first, with `pipeline shards merge {features.folder} --out DIR`"
            )
        count = plan.counts[number]
        shards.append(_Shard(number, count, entry.first_row, entry.rows, size, places))
    axes = axis_names(features.index.header) or [f"axis_{n}" for n in range(len(features.shape))]
    refs: dict[str, str] = {
        ".zgroup": canonical_json({"zarr_format": 2}),
        ".zattrs": canonical_json(features.index.header.attributes()),
    }
    rules: list[dict[str, Any]] = []
    for column in COLUMNS:
        if all(column.name not in shard.places for shard in shards):
            continue
        name, inner = column.name, features.row_shape if column.name == FEATURES else ()
        dtypes = {shard.places[name].dtype for shard in shards if name in shard.places}
        if all(name in s.places and s.places[name].offset for s in shards) and len(dtypes) == 1:
            (dtype,) = dtypes
            rows = _chunk_rows(shards, name, dtype.itemsize * math.prod(inner))
            rules += _rules(shards, name, rows, dtype.itemsize * math.prod(inner), len(inner))
            compressor = None
        else:
            values = _values(features, column)
            dtype, rows = values.dtype, max(1, min(len(values), _INLINE_BYTES // values.itemsize))
            compressor = {"id": "zlib", "level": 9}
            refs |= _inline(name, values, rows)
        about: dict[str, Any] = {"_ARRAY_DIMENSIONS": list(axes[: 1 + len(inner)])}
        if column.dtype == TEXT:
            about["_Encoding"] = "utf-8"  # by which xarray decodes them
        refs[f"{name}/.zattrs"] = canonical_json(about)
        refs[f"{name}/.zarray"] = canonical_json(
            {
                "zarr_format": 2,
                "shape": [len(features), *inner],
                "chunks": [rows, *inner],
                "dtype": dtype.str,
                # Null for numbers: xarray would show them as floats, with NaN in place of it.
                "fill_value": "" if dtype.kind == "S" else None,
                "order": "C",
                "filters": None,
                "compressor": compressor,
            }
        )
    folder = url or url_of(features.folder) or str(features.folder.absolute())
    templates = {"u": folder.rstrip("/")}
    write_json(out, {"version": 1, "templates": templates, "gen": rules, "refs": refs})


def _chunk_rows(shards: Sequence[_Shard], name: str, row_bytes: int) -> int:
    """Return the rows of a chunk: as many as 4 MiB hold, none across two shards."""
    *others, last = shards
    common = math.gcd(*(shard.rows for shard in others)) or last.rows
    most = max(1, min(common, _CHUNK_BYTES // row_bytes))
    end = (last.places[name].offset or 0) + last.rows * row_bytes
    # The last chunk may be longer than its rows, by bytes of the file that no reader looks at.
    return next(
        rows
        for rows in range(most, 0, -1)
        if (not others or common % rows == 0) and end + -last.rows % rows * row_bytes <= last.size
    )


def _rules(
    shards: Sequence[_Shard], name: str, rows: int, row_bytes: int, inner: int
) -> list[dict[str, Any]]:
    """Return a rule for all chunks of successive shards with the same rows and offset."""
    rules = []
    like = groupby(shards, lambda shard: (shard.shards, shard.rows, shard.places[name].offset))
    for (count, rows_of_shard, offset), run in like:
        first, *others = run
        chunks = -(-rows_of_shard // rows)
        before = first.first_row // rows - first.number * chunks
        file = f"shard-{{{{'%05d' % s}}}}-of-{count:05d}.h5"
        rules.append(
            {
                # Not "{{-", which strips blanks: `before` may be negative.
                "key": f"{name}/{{{{ {before} + s * {chunks} + i }}}}{'.0' * inner}",
                "url": "{{u}}/" + file,
                "offset": f"{{{{{offset} + i * {rows * row_bytes}}}}}",
                "length": str(rows * row_bytes),
                "dimensions": {
                    "s": {"start": first.number, "stop": first.number + 1 + len(others)},
                    "i": {"stop": chunks},
                },
            }
        )
    return rules


def _values(features: FeatureSet, column: Column) -> np.ndarray:
    """Return the values of a column (rows,); texts as UTF-8 of one length."""
    values: Any = {**vars(features), **features.sources}[column.key]
    if column.dtype == TEXT:
        return np.array([text.encode() for text in values], np.bytes_)
    return np.asarray(values)


def _inline(name: str, values: np.ndarray, rows: int) -> dict[str, str]:
    """Return the chunks of a column by key; those without any text are left out."""
    starts = range(0, len(values), rows)
    blank = np.zeros(rows, values.dtype)
    chunks: dict[str, str] = {}
    for number, start in enumerate(starts):
        chunk = blank.copy()
        chunk[: len(values) - start] = values[start : start + rows]
        if values.dtype.kind != "S" or chunk.any():
            packed = base64.b64encode(zlib.compress(chunk.tobytes(), 9)).decode()
            chunks[f"{name}/{number}"] = f"base64:{packed}"
    return chunks
