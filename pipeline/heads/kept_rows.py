"""Reuse of rows of an earlier embedding file with the same head and features."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.heads.embedding_source import CHUNK_ROWS, EmbeddingSource, Taken
from pipeline.heads.inputs.feature_rows import Features, RowNumbers
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings, read_features_crc32
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.quantised.codes import QuantisedRows
from pipeline.store.hashing import canonical_json
from pipeline.store.packed import PackedTexts, TextIndex
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.feature_set import FeatureSet


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Rows of one side that an earlier file already contains.

    Attributes
    ----------
    source : EmbeddingSource. Source of all rows of the new set.
    earlier : (n, dim) or (n, parts, dim) float32 rows of the earlier file.
    rows : (rows,) int64, the index of each row in the earlier file; -1: to be computed.
    """

    source: EmbeddingSource
    earlier: Features
    rows: RowNumbers

    @property
    def others(self) -> EmbeddingSource | None:
        """The source of the rows to compute; None if there are none."""
        source, other = self.source, np.flatnonzero(self.rows < 0)
        if not len(other):
            return None
        return replace(
            source,
            ids=PackedTexts(source.ids[row] for row in other.tolist()),
            rows=Taken(source.rows, other, Stopwatch()),
            read=lambda row: source.read(int(other[row])),
            whole=source.set_rows,
            shape=source.header.row_shape,
        )

    def blocks(self, computed: FeatureSet | None) -> Iterator[Features]:
        """Yield all rows in order, in blocks of some MiB.

        Parameters
        ----------
        computed : FeatureSet or None. Feature set with the rows of `others`, in order; None if
            there are none.
        """
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
    """Return the existing embedding file at `out`, and the CRC-32 of its input features by side.

    None if the file is missing, corrupt or of another head.

    Parameters
    ----------
    out : Path. The embedding file that is to be rewritten.
    provenance : dict. Provenance of the head; that of the file must be equal.
    """
    if not out.is_file() or provenance.get("tensors_sha256") is None:
        return None
    try:
        earlier, crc32 = read_embeddings(out, codes=True), read_features_crc32(out)
    except EmbeddingsError:
        return None
    stated = {name: earlier.provenance.get(name) for name in provenance}
    if isinstance(earlier.image_embeddings, QuantisedRows) or "dim" in earlier.provenance:
        return None
    if not crc32 or canonical_json(stated) != canonical_json(provenance):
        return None
    return earlier, crc32


def kept_rows(
    source: EmbeddingSource,
    found: tuple[Embeddings, dict[str, Any]] | None,
    log: Callable[[str], None],
) -> KeptRows | None:
    """Return the reusable rows of a side, matched by id and CRC-32 of their features.

    Some are recomputed as a check. If a byte differs, as with another version of torch, all rows
    are computed.

    Parameters
    ----------
    source : EmbeddingSource. Source of all rows.
    found : see `earlier_embeddings`.
    log : callable. Receives one line with the counts.
    """
    if found is None:
        return None
    earlier, crc32 = found
    ids, embedded = (
        (earlier.image_ids, earlier.image_embeddings)
        if source.side == "images"
        else (earlier.caption_ids, earlier.caption_embeddings)
    )
    if min(len(ids), source.set_rows) < CHUNK_ROWS:
        return None
    same = TextIndex(ids).rows_of(source.ids, len(source.ids))
    known = same >= 0
    changed = known.copy()
    changed[known] = crc32[source.side][same[known]] != source.crc32()[known]
    rows = np.where(known & ~changed, same, -1)
    kept = np.flatnonzero(rows >= 0)
    if not len(kept):
        return None
    checked = kept[:: -(-len(kept) // CHUNK_ROWS)]
    if source.embed_rows(checked).tobytes() != embedded[rows[checked]].tobytes():
        log(f"{source.side}: embeddings differ from those of the earlier file in their last bits")
        return None
    log(
        f"{len(rows)} {source.side}: {len(kept)} embeddings kept, {int((~known).sum())} new, "
        f"{int(changed.sum())} changed, {len(ids) - int(known.sum())} removed"
    )
    return KeptRows(source, embedded, rows)
