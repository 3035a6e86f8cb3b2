"""Rows of an earlier embedding file that an embedding with the same head can copy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.heads.embedding_source import CHUNK_ROWS, EmbeddingSource, RowSubset
from pipeline.heads.inputs.feature_rows import Features
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import (
    IN_FULL,
    embeddings_record,
    read_embeddings,
    read_features_crc32,
)
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.current.record import stale
from pipeline.store.packed import PackedTexts, TextIndex
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.row_keys import RowNumbers


@dataclass(frozen=True, eq=False)
class CopiedRows:
    """Rows of one side that an earlier file already contains."""

    source: EmbeddingSource  # all rows of the new set
    earlier: Features  # (n, dim) or (n, parts, dim) float32 rows of the earlier file
    rows: RowNumbers  # (rows,) index of each row in the earlier file; -1: to be computed

    @property
    def others(self) -> EmbeddingSource | None:
        """Source of the rows to compute; None if there are none."""
        source, other = self.source, np.flatnonzero(self.rows < 0)
        if not len(other):
            return None
        return replace(
            source,
            ids=PackedTexts(source.ids[row] for row in other.tolist()),
            rows=RowSubset(source.rows, other, Stopwatch()),
            read=lambda row: source.read(int(other[row])),
            whole=source.set_rows,
            shape=source.header.row_shape,
        )

    def blocks(self, computed: FeatureSet | None) -> Iterator[Features]:
        """Yield all rows in order, in blocks of some MiB; `computed` has those of `others`."""
        done = 0
        for start in range(0, len(self.rows), CHUNK_ROWS):
            rows = self.rows[start : start + CHUNK_ROWS]
            block = np.empty((len(rows), *self.earlier.shape[1:]), np.float32)
            block[rows >= 0] = self.earlier[rows[rows >= 0]]
            if computed is not None and (new := int((rows < 0).sum())):
                block[rows < 0] = computed.read_rows(np.arange(done, done + new))
                done += new
            yield block


def earlier_embeddings(
    out: Path, provenance: dict[str, Any]
) -> tuple[Embeddings, dict[str, Any]] | None:
    """Return the file of the same head at `out`, if any, and its features' CRC-32 by side."""
    if provenance.get("tensors_sha256") is None:
        return None
    # Rows are reusable only as embedded: all dimensions, float32.
    if stale(out, embeddings_record, lambda: {**IN_FULL, **provenance}):
        return None
    try:
        earlier, crc32 = read_embeddings(out), read_features_crc32(out)
    except EmbeddingsError:
        return None
    return (earlier, crc32) if crc32 else None


def copied_rows(
    source: EmbeddingSource,
    earlier: tuple[Embeddings, dict[str, Any]] | None,
    log: Callable[[str], None],
) -> CopiedRows | None:
    """Return the rows of a side whose id and features' CRC-32 are those of `earlier`, if any."""
    if earlier is None:
        return None
    embeddings, crc32 = earlier
    ids, embedded = (
        (embeddings.image_ids, embeddings.image_embeddings)
        if source.side == "images"
        else (embeddings.caption_ids, embeddings.caption_embeddings)
    )
    if min(len(ids), source.set_rows) < CHUNK_ROWS:
        return None
    same = TextIndex(ids).rows_of(source.ids, len(source.ids))
    matched = same >= 0
    changed = matched.copy()
    changed[matched] = crc32[source.side][same[matched]] != source.crc32()[matched]
    rows = np.where(matched & ~changed, same, -1)
    reusable = np.flatnonzero(rows >= 0)
    if not len(reusable):
        return None
    # A sample is recomputed: another version of torch may change the last bits, and one file must
    # not mix both.
    checked = reusable[:: -(-len(reusable) // CHUNK_ROWS)]
    if source.embed_rows(checked).tobytes() != embedded[rows[checked]].tobytes():
        log(f"{source.side}: embeddings differ from those of the earlier file in their last bits")
        return None
    log(
        f"{len(rows)} {source.side}: {len(reusable)} embeddings kept, {int((~matched).sum())} new, "
        f"{int(changed.sum())} changed, {len(ids) - int(matched.sum())} removed"
    )
    return CopiedRows(source, embedded, rows)
