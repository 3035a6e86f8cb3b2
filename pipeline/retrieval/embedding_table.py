"""Embedding files as Parquet or Arrow: one row per image and caption."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.builder.locking import require_output_file
from pipeline.store.convert.export import layout_of
from pipeline.store.convert.tables import CAPTIONS, VECTOR, described_rows, table_writer, vectors
from pipeline.store.errors import WrongUsage
from pipeline.store.files import appearing_whole
from pipeline.store.hashing import canonical_json, sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.writer import explained

_BLOCK_BYTES = 1 << 24


def export_embeddings(
    embeddings: str | Path,
    out: str | Path,
    *,
    to: str | None = None,
    dataset: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> int:
    """Write an embedding file as a table, and return the number of rows: images, then captions.

    Columns: `id`, `side` ("image" or "caption"), `image_id`, with a dataset `split` and `captions`
    (all of an image, or the one of a caption), and `vector`, a fixed-size list of float32. Sets of
    vectors are flattened; the side with fewer parts is padded with zeros, which such similarities
    ignore. Similarity, row shape and provenance are in the schema metadata. About 16 MiB are in
    memory at a time. Equal files produce equal bytes with the same version of pyarrow.
    """
    out, file = Path(out), Path(embeddings)
    to = to or layout_of(out)
    if to not in ("parquet", "arrow"):
        raise WrongUsage(
            f"an embedding file is exported `to=parquet` or `to=arrow`, not {to!r}; it is HDF5 "
            "already, with images/embedding and captions/embedding"
        )
    require_output_file(out)
    e = read_embeddings(file)
    manifest = None if dataset is None else read_manifest(dataset)
    sides = (e.image_embeddings, e.caption_embeddings)
    shape = tuple(np.max([side.shape[1:] for side in sides], axis=0).tolist())
    schema = _schema(e, shape, manifest is not None, sha256_of_file(file))
    rows, row = len(e.image_ids) + len(e.caption_ids), 0
    with (
        monitor.progress("export", "row") as progress,
        explained(out, rows * int(np.prod(shape)) * 4),
        appearing_whole(out) as part,
        table_writer(part, schema, to) as writer,
    ):
        for batch in _batches(e, shape, schema, manifest):
            writer.write_batch(batch)
            row += len(batch)
            progress(row, rows, 0)
    return rows


def _schema(e: Embeddings, shape: tuple[int, ...], described: bool, sha256: str) -> pa.Schema:
    joined = [("split", pa.string()), ("captions", CAPTIONS)] if described else []
    fields = [
        ("id", pa.string()),
        ("side", pa.string()),
        ("image_id", pa.string()),
        *joined,
        (VECTOR, pa.list_(pa.float32(), int(np.prod(shape)))),
    ]
    about = {
        "similarity": e.similarity,
        "row_shape": canonical_json(list(shape)),
        "provenance": canonical_json(e.provenance),
        "embeddings_sha256": sha256,
    }
    return pa.schema(fields, metadata=about)


def _batches(
    e: Embeddings, shape: tuple[int, ...], schema: pa.Schema, dataset: Manifest | None
) -> Iterator[pa.RecordBatch]:
    step = max(1, _BLOCK_BYTES // (4 * int(np.prod(shape))))
    for side, ids, owners, values in (
        ("image", e.image_ids, e.image_ids, e.image_embeddings),
        ("caption", e.caption_ids, e.caption_image_ids, e.caption_embeddings),
    ):
        described = None if dataset is None else described_rows(ids, dataset)
        for start in range(0, len(ids), step):
            here = slice(start, start + step)
            texts = list(ids[here])
            columns = [pa.array(texts), pa.array([side] * len(texts)), pa.array(owners[here])]
            if described is not None:
                splits, captions = zip(*(next(described) for _ in texts), strict=True)
                columns += [pa.array(splits, pa.string()), pa.array(captions, CAPTIONS)]
            block = np.zeros((len(texts), *shape), np.float32)
            block[tuple(slice(n) for n in values[here].shape)] = values[here]
            columns.append(vectors(block, schema.field(VECTOR).type))
            yield pa.record_batch(columns, schema)
