"""Embeddings of one side as the rows of a feature set whose recipe is the trained head."""

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.heads import HeadError
from pipeline.heads.inputs.averaged import AveragedRows
from pipeline.heads.inputs.feature_rows import FeatureRows, Features, Rows, rows_of_block
from pipeline.heads.inputs.feature_spec import caption_blocks
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.retrieval.embeddings import num_axes
from pipeline.store.devices import one_core_each
from pipeline.store.files import created_by
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.ordered import ending_at_once, in_order
from pipeline.store.jobs.origins import ALL
from pipeline.store.objects.urls import absolute
from pipeline.store.progress import FORWARD, READ, Stopwatch
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK, FeatureHeader, RowBlock, ShardError
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.shipping import Ship, Shipped
from pipeline.text.encoders.token_ids import PADDING

Side = Literal["images", "captions"]

CHUNK_ROWS = 512
"""Rows per matrix product; `pipeline.heads.base` uses at least as many.

The last bits of a row depend on the shapes of matrix products, but not on the other rows. With one
shape for all blocks, a row has the same bytes in any set of at least as many rows.
"""

_SEQUENCE_ROWS = 64  # smaller blocks for sequences, since few rows share a length
_WINDOW_ROWS = 8192


@dataclass(frozen=True, eq=False)
class EmbeddingSource:
    """Embeddings of one side as a `pipeline.store.jobs.feature_source.FeatureSource`."""

    trained: TrainedHead
    side: Side
    dataset: str
    ids: Sequence[str]  # of all rows
    rows: Rows  # input features of each row
    # Ids in `features` from which a row is computed; several are averaged.
    read: Callable[[int], Sequence[str]]
    features: FeatureSet
    head: Path | None = None  # folder from which workers load the head; None: no workers
    whole: int | None = None  # row count of the full set if these rows are a subset
    shape: tuple[int, ...] | None = None  # of one embedding; None: that of the first row
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))  # blocks at a time
    unit: str = "row"  # noun for a row, for messages
    gpu: bool = False

    @property
    def origin(self) -> "FixedOrigin":
        """Fixed origin of the rows: the digest of the input features."""
        return FixedOrigin(self.rows.digest())

    @cached_property
    def header(self) -> FeatureHeader:
        """Header whose recipe is the head, and whose weights are the head's tensors."""
        trained, axes = self.trained, "row, part, dimension"
        spec = trained.inputs.images if self.side == "images" else trained.inputs.captions
        if num_axes(trained.head.similarity) == 2:
            axes = "row, dimension"
        return FeatureHeader(
            recipe={
                "name": trained.experiment,
                "kind": "embeddings",
                "side": self.side,
                "head": trained.kind,
                "features": spec.recipe_hash,
            },
            weights=f"head {trained.experiment}",
            weights_sha256=self.tensors_sha256,
            axes=axes,
            dataset=self.dataset,
            row_shape=self.shape or self._found_shape,
            dtype="float32",
            created_by=created_by("torch", "numpy", "h5py"),
        )

    @cached_property
    def tensors_sha256(self) -> str:
        """SHA-256 of the head's tensors: of the file, or computed for an unsaved head."""
        if self.trained.tensors_sha256 is not None:
            return self.trained.tensors_sha256
        digest = sha256()
        for name, tensor in sorted(self.trained.head.tensors().items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def _found_shape(self) -> tuple[int, ...]:
        return self._embed(np.arange(1), Stopwatch()).shape[1:]

    @property
    def set_rows(self) -> int:
        """Row count of the full set."""
        return len(self.rows) if self.whole is None else self.whole

    def crc32(self) -> npt.NDArray[np.uint32]:
        """Return the CRC-32 of each row's input features, (rows,) uint32."""
        read = [list(self.read(row)) for row in range(len(self.rows))]
        flat = self.features.rows_to_read([row_id for ids in read for row_id in ids])
        checksums = self.features.crc32[flat].astype(np.uint32)
        if len(checksums) == len(read):
            return checksums
        per_row = np.split(checksums, np.cumsum([len(ids) for ids in read])[:-1])
        return np.array([zlib.crc32(of_row.tobytes()) for of_row in per_row], np.uint32)

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Embed the rows of some spans, one block per core at a time."""
        with (
            one_core_each(),
            ThreadPoolExecutor(self.threads, thread_name_prefix="embed") as pool,
            ending_at_once(pool),
        ):
            for pieces in _windows(spans):
                rows = np.concatenate([np.arange(piece.start, piece.stop) for piece in pieces])
                embedded = self._embedded(rows, pool, watch)
                ends = np.cumsum([len(piece) for piece in pieces]).tolist()
                for piece, end in zip(pieces, ends, strict=True):
                    status = np.full(len(piece), OK, np.uint8)
                    block = embedded[end - len(piece) : end]
                    yield piece.start, RowBlock(block, status, ("",) * len(piece))

    def embed_rows(self, rows: RowNumbers) -> Features:
        """Return the embeddings of rows as `compute` would, (n, dim) or (n, parts, dim) float32."""
        with one_core_each(), ThreadPoolExecutor(self.threads) as pool, ending_at_once(pool):
            return self._embedded(rows, pool, Stopwatch())

    def part(
        self, rows: RowNumbers, threads: int | None, ship: Ship
    ) -> Callable[[], FeatureSource]:
        """Return the source of some rows on a worker, which loads the head once."""
        assert self.head is not None, "workers need the head's folder"
        read = [list(self.read(row)) for row in rows.tolist()]
        head, tensors_sha256 = ship(self.head), self.trained.tensors_sha256
        folder, digest = absolute(self.features.folder), _rows(self.features, read).digest()
        ids = [self.ids[row] for row in rows.tolist()]
        return partial(
            _part, (head, tensors_sha256), (folder, digest), self.side, self.set_rows,
            self.header.row_shape, self.dataset, ids, read,
        )  # fmt: skip

    def _embedded(self, rows: RowNumbers, pool: Executor, watch: Stopwatch) -> Features:
        """Return the embeddings of rows (n,), independent of the other rows in the call."""
        # Small sets are one product. Otherwise all products have one shape, by repeated rows, so
        # that the last bits of a row do not depend on the rows that are embedded with it.
        if self.set_rows < CHUNK_ROWS:
            return self._embed(np.arange(len(self.rows)), watch)[rows]
        embeddings = np.empty((len(rows), *self.header.row_shape), np.float32)
        blocks = in_order(
            self._blocks(rows),
            lambda block: pool.submit(self._embed, np.resize(rows[block[0]], block[1]), watch),
            2 * self.threads + 1,
        )
        for (places, _), embedded in blocks:
            embeddings[places] = embedded[: len(places)]
        return embeddings

    def _blocks(self, rows: RowNumbers) -> Iterator[tuple[RowNumbers, int]]:
        """Yield positions in `rows` to embed together, and the row count of their block."""
        size = rows_of_block(self.rows, CHUNK_ROWS)
        lengths = self._lengths(rows)
        if lengths is None:
            for start in range(0, len(rows), size):
                yield np.arange(start, min(start + size, len(rows))), size
            return
        # Networks skip padding, so a block has sequences of equal lengths only.
        size = min(size, _SEQUENCE_ROWS)
        _, group = np.unique(lengths, axis=0, return_inverse=True)
        order = np.argsort(group, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            for start in range(0, len(places), size):
                yield places[start : start + size], size

    def _lengths(self, rows: RowNumbers) -> RowNumbers | None:
        """Return the lengths of the sequences in each row, (n, sequences); None for vectors."""
        if self.side == "images" or len(self.rows.row_shape) > 1:
            return None
        sequences = [
            block.columns
            for block in caption_blocks(self.trained.inputs.captions)
            if block.kind in ("sequence", "tags")
        ]
        if not sequences:
            return None
        lengths = []
        for start in range(0, len(rows), CHUNK_ROWS):
            taken = self.rows.take(rows[start : start + CHUNK_ROWS])
            lengths.append(np.stack([(taken[:, c] != PADDING).sum(1) for c in sequences], axis=1))
        return np.concatenate(lengths)

    def _embed(self, rows: RowNumbers, watch: Stopwatch) -> Features:
        """Return the embeddings of rows (n,) in one block, (n, dim) or (n, parts, dim) float32."""
        head, spent = self.trained.head, Stopwatch()
        embed = head.embed_images if self.side == "images" else head.embed_captions
        with spent.timing(FORWARD):
            embedded = embed(RowSubset(self.rows, rows, spent))
        read = spent.seconds.get(READ, 0.0)
        watch.add(READ, read)
        watch.add(FORWARD, spent.seconds[FORWARD] - read)
        return embedded


def _windows(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield lists of spans of some thousand rows each; long spans are split."""
    pieces: list[Span] = []
    free = _WINDOW_ROWS
    for span in spans:
        start = span.start
        while start < span.stop:
            piece = Span(start, min(span.stop, start + free))
            pieces.append(piece)
            start, free = piece.stop, free - len(piece)
            if not free:
                yield pieces
                pieces, free = [], _WINDOW_ROWS
    if pieces:
        yield pieces


@dataclass(frozen=True)
class FixedOrigin:
    """Origin without change detection: rows depend on a feature set with its own checksums."""

    content: str
    files: None = None
    stamps: None = None
    versioned: bool = False
    plural: str = "rows"

    def digest(self, rows: slice = ALL) -> str:
        return self.content

    def crc32(self, rows: RowNumbers) -> npt.NDArray[np.uint32]:
        """Return zeros: origins are not recorded per row."""
        return np.zeros(len(rows), np.uint32)


class RowSubset:
    """A subset of the rows of a side."""

    def __init__(self, rows: Rows, taken: RowNumbers, watch: Stopwatch) -> None:
        self._rows, self._taken, self._watch = rows, taken, watch
        self.row_shape: tuple[int, ...] = rows.row_shape

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, rows: RowNumbers) -> Features:
        with self._watch.timing(READ):
            return self._rows.take(self._taken[rows])

    def digest(self) -> str:
        return f"{self._rows.digest()} {sha256(self._taken.tobytes()).hexdigest()}"


def _part(
    head: tuple[Shipped, str | None],  # folder, and SHA-256 of the tensors
    inputs: tuple[Path, str],  # folder of the features, and digest of the rows
    side: Side,
    whole: int,
    shape: tuple[int, ...],
    dataset: str,
    ids: Sequence[str],
    read: Sequence[Sequence[str]],
) -> EmbeddingSource:
    """Return the source of some embeddings on a worker, if it sees the same head and features."""
    folder = head[0].here()
    trained, features = _loaded(folder, inputs[0])
    if trained.tensors_sha256 != head[1]:
        raise HeadError(f"a worker sees another head in {folder} than the command")
    if (own := _rows(features, read)).digest() != inputs[1]:
        raise ShardError(f"a worker sees other features in {inputs[0]} than the command")
    return EmbeddingSource(
        trained, side, dataset, ids, own, read.__getitem__, features, folder, whole, shape, 1
    )


@lru_cache(maxsize=2)
def _loaded(head: Path, features: Path) -> tuple[TrainedHead, FeatureSet]:
    """Return a head and the features of one side, opened once in a process."""
    import torch

    # Not restored afterwards: concurrent tasks on this worker would undo each other's setting.
    torch.set_num_threads(1)
    return load_head(head), FeatureSet(features)


def _rows(features: FeatureSet, read: Sequence[Sequence[str]]) -> Rows:
    """Return rows that are each computed from one or several features."""
    flat = FeatureRows(features, [row_id for ids in read for row_id in ids])
    if len(flat) == len(read):
        return flat
    return AveragedRows(flat, np.repeat(np.arange(len(read)), [len(ids) for ids in read]))
