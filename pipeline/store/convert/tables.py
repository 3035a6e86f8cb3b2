"""Parquet and Arrow: one row per id with its split, captions, status, reason and vector."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc, parquet

from pipeline.datasets.manifest import Manifest
from pipeline.store.files import appearing_whole
from pipeline.store.hashing import canonical_json
from pipeline.store.progress import Progress, no_progress
from pipeline.store.shards.feature_set import FeatureSet, MissingRows
from pipeline.store.shards.format import OK, SOURCE_CRC32, STATUS_NAMES
from pipeline.store.shards.row_keys import images_of_rows
from pipeline.store.shards.writer import explained

VECTOR = "vector"
CAPTIONS = pa.list_(pa.string())


def export_table(
    features: FeatureSet,
    out: Path,
    ids: Sequence[str],
    to: str,
    dataset: Manifest | None = None,
    allow_failed: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Write a table with the columns id, split, captions, status, reason and vector.

    `vector` is a fixed-size list of float32 or float16, as stored; a grid is flattened in C order,
    and its shape is in the schema metadata, with recipe, weights and versions. The vector of a
    failed row is null. Without a dataset, split and captions are omitted. About 16 MiB are in
    memory, and form one row group or record batch. The same set produces the same bytes with the
    same version of pyarrow.
    """
    schema, batches = table_batches(features, ids, dataset, allow_failed, progress)
    size = len(ids) * features.index.header.row_bytes
    with (
        explained(out, size),
        appearing_whole(out) as part,
        table_writer(part, schema, to) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


def table_batches(
    features: FeatureSet,
    ids: Sequence[str],
    dataset: Manifest | None,
    allow_failed: bool,
    progress: Progress,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the rows of a table; missing and failed rows raise here."""
    blocks = features.blocks(ids, allow_failed)
    described = None if dataset is None else described_rows(ids, dataset)
    more = [name for name in features.sources if name != SOURCE_CRC32]
    schema = _schema(features, described is not None, more)

    def batches() -> Iterator[pa.RecordBatch]:
        row = 0
        for block in blocks:
            here = slice(row, row + len(block))
            columns = [pa.array(ids[here], pa.string())]
            if described is not None:
                splits, captions = zip(*(next(described) for _ in ids[here]), strict=True)
                columns += [pa.array(splits, pa.string()), pa.array(captions, CAPTIONS)]
            statuses = [STATUS_NAMES[int(status)] for status in block.status]
            columns += [
                pa.array(statuses, pa.string()),
                pa.array(block.errors, pa.string()),
                *(pa.array(block.sources[name]) for name in more),
                vectors(block.features, schema.field(VECTOR).type, block.status != OK),
            ]
            yield pa.record_batch(columns, schema)
            row += len(block)
            progress(row, len(ids), 0)

    return schema, batches()


def _schema(features: FeatureSet, described: bool, more: Sequence[str]) -> pa.Schema:
    header = features.index.header
    about = {name: str(value) for name, value in header.attributes().items()}
    about |= {
        "row_shape": canonical_json(list(header.row_shape)),
        "content_sha256": features.index.content_sha256,
    }
    value = {"float32": pa.float32(), "float16": pa.float16()}[header.dtype]
    joined = [("split", pa.string()), ("captions", CAPTIONS)] if described else []
    fields = [
        ("id", pa.string()),
        *joined,
        ("status", pa.string()),
        ("reason", pa.string()),
        *((name, pa.from_numpy_dtype(features.sources[name].dtype)) for name in more),
        (VECTOR, pa.list_(value, int(np.prod(header.row_shape)))),
    ]
    return pa.schema(fields, metadata=about)


def table_writer(part: Path, schema: pa.Schema, to: str) -> AbstractContextManager[Any]:
    """Return a deterministic writer of record batches to a Parquet or Arrow file."""
    if to == "arrow":
        writer: AbstractContextManager[Any] = ipc.new_file(str(part), schema)
        return writer
    texts = [field.name for field in schema if field.name != VECTOR]
    short = {"split", "side", "status", "reason"}
    # Float features neither repeat nor compress.
    return parquet.ParquetWriter(
        part,
        schema,
        compression={**dict.fromkeys(texts, "zstd"), VECTOR: "none"},
        use_dictionary=[name for name in texts if name in short],
        write_statistics=[name for name in texts if name not in ("captions", "reason")],
    )


def vectors(
    rows: npt.NDArray[Any], kind: pa.FixedSizeListType, failed: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return rows (n, ...) as fixed-size lists; failed rows are null."""
    values = pa.array(np.ascontiguousarray(rows).reshape(-1), kind.value_type)
    mask = pa.array(failed) if failed is not None and failed.any() else None
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)


def described_rows(ids: Sequence[str], dataset: Manifest) -> Iterator[tuple[str, list[str]]]:
    """Return an iterator over split and captions of each row; all rows are checked first."""
    images = dataset.by_id
    for row_id, (image, kind, number) in zip(ids, images_of_rows(ids, images), strict=True):
        if image not in images:
            raise MissingRows(
                f"row {row_id!r} has no {dataset.unit} in dataset {dataset.name!r}, which has "
                f"{len(images)}, such as {next(iter(images))!r}; name the dataset of "
                "these features, or omit `dataset=...`"
            )
        if kind == "#" and number >= len(images[image].captions):
            raise MissingRows(
                f"row {row_id!r}: {image!r} has {len(images[image].captions)} captions in dataset "
                f"{dataset.name!r}; prepare the dataset and compute features of the same captions"
            )
    return _joined(ids, dataset)


def _joined(ids: Sequence[str], dataset: Manifest) -> Iterator[tuple[str, list[str]]]:
    images = dataset.by_id
    for image, kind, number in images_of_rows(ids, images):
        entry = images[image]
        captions = [entry.captions[number]] if kind == "#" else list(entry.captions)
        yield entry.split, captions
