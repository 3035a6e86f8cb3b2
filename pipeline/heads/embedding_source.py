"""Embeddings of one side as rows of a feature set, whose recipe is the trained head."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.devices import one_core_each
from pipeline.files import created_by
from pipeline.heads import HeadError
from pipeline.heads.inputs.averaged import AveragedRows
from pipeline.heads.inputs.feature_rows import FeatureRows, Features, RowNumbers, Rows
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.jobs.feature_source import Task
from pipeline.jobs.ordered import ending_at_once, in_order
from pipeline.progress import FORWARD, READ, Stopwatch
from pipeline.retrieval.embeddings import num_axes
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.format import OK, FeatureHeader, RowBlock
from pipeline.shards.plan import Span
from pipeline.shards.resume.job_ref import NotShared

Side = Literal["images", "captions"]

CHUNK_ROWS = 1024
"""Rows that are embedded together, whoever does the work: the last bits depend on it."""


@dataclass(frozen=True, eq=False)
class EmbeddingSource:
    """Embeddings of images or of captions as a `pipeline.jobs.feature_source.FeatureSource`.

    Attributes
    ----------
    trained : the head.
    side : which of its maps.
    dataset : name of the dataset.
    ids, rows : id and features of each row.
    read : returns the ids of the features that a row is made from, in `features`: one, or several
        that are averaged.
    features : what the rows are read from.
    head : folder of the head, from which workers load it; None: this process alone embeds.
    shape : of one row; None: found by embedding the first chunk.
    """

    trained: TrainedHead
    side: Side
    dataset: str
    ids: Sequence[str]
    rows: Rows
    read: Callable[[int], Sequence[str]]
    features: FeatureSet
    head: Path | None = None
    shape: tuple[int, ...] | None = None
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    unit: str = "row"

    @property
    def origin(self) -> "Fixed":
        """The features, which are never recomputed here: their folder has its own hash."""
        return Fixed(self.rows.digest())

    @cached_property
    def header(self) -> FeatureHeader:
        """The head as a recipe, its tensors as weights."""
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
            row_shape=self.shape or self._first.shape[1:],
            dtype="float32",
            created_by=created_by("torch", "numpy", "h5py"),
        )

    @cached_property
    def tensors_sha256(self) -> str:
        """SHA-256 of the head's tensors: of their file, or of a head that is not saved."""
        if self.trained.tensors_sha256 is not None:
            return self.trained.tensors_sha256
        digest = sha256()
        for name, tensor in sorted(self.trained.head.tensors().items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def _first(self) -> Features:
        with one_core_each():
            return self._embed(0, Stopwatch())

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Embed the rows of some spans, a chunk at a time on each core."""
        chunks = [
            (chunk, Span(max(span.start, chunk * CHUNK_ROWS), min(span.stop, end)))
            for span in spans
            for chunk in range(span.start // CHUNK_ROWS, -(-span.stop // CHUNK_ROWS))
            if (end := (chunk + 1) * CHUNK_ROWS)
        ]
        with (
            one_core_each(),
            ThreadPoolExecutor(self.threads, thread_name_prefix="embed") as pool,
            ending_at_once(pool),
        ):
            embedded = in_order(
                chunks,
                lambda chunk: pool.submit(self._chunk, chunk[0], watch),
                2 * self.threads + 1,
            )
            for (chunk, span), rows in embedded:
                first = chunk * CHUNK_ROWS
                found = rows[span.start - first : span.stop - first]
                status = np.full(len(span), OK, np.uint8)
                yield span.start, RowBlock(found, status, ("",) * len(span))

    def task(self, threads: int | None) -> Task:
        """Return the folders of head and features, which a worker opens once."""
        assert self.head is not None, "workers need the head's folder"
        settings = {
            "head": str(self.head.absolute()),
            "tensors_sha256": self.trained.tensors_sha256,
            "features": str(self.features.folder.absolute()),
            "side": self.side,
            "shape": list(self.header.row_shape),
        }
        factory = "pipeline.heads.embedding_source:source_on_worker"
        return Task(factory, settings, self._rows_of)

    def _rows_of(self, rows: RowNumbers) -> dict[str, Any]:
        read = [list(self.read(row)) for row in rows.tolist()]
        return {"read": read, "digest": _rows(self.features, read).digest()}

    def _chunk(self, chunk: int, watch: Stopwatch) -> Features:
        if not chunk and self.shape is None and "_first" in self.__dict__:
            return self._first
        return self._embed(chunk, watch)

    def _embed(self, chunk: int, watch: Stopwatch) -> Features:
        """Return the embeddings of one chunk, (n, dim) or (n, parts, dim) float32."""
        start = chunk * CHUNK_ROWS
        span = Span(start, min(start + CHUNK_ROWS, len(self.rows)))
        head, spent = self.trained.head, Stopwatch()
        embed = head.embed_images if self.side == "images" else head.embed_captions
        with spent.timing(FORWARD):
            embedded = embed(_ChunkRows(self.rows, span, spent))
        read = spent.seconds.get(READ, 0.0)
        watch.add(READ, read)
        watch.add(FORWARD, spent.seconds[FORWARD] - read)
        return embedded


@dataclass(frozen=True)
class Fixed:
    """An origin that does not change; see `pipeline.jobs.origins.Origin`."""

    content: str
    files: None = None
    stamps: None = None
    plural: str = "rows"

    def digest(self) -> str:
        """Return the digest of the features."""
        return self.content

    def crc32(self, rows: RowNumbers) -> npt.NDArray[np.uint32]:
        """Return zeros: what rows are made from is not recorded row by row."""
        return np.zeros(len(rows), np.uint32)


class _ChunkRows:
    """The rows of a chunk, taken from all rows of its side."""

    def __init__(self, rows: Rows, span: Span, watch: Stopwatch) -> None:
        self._rows, self._span, self._watch = rows, span, watch
        self.row_shape: tuple[int, ...] = rows.row_shape

    def __len__(self) -> int:
        return len(self._span)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,) within the chunk; see `Rows.take`."""
        with self._watch.timing(READ):
            return self._rows.take(rows + self._span.start)

    def digest(self) -> str:
        """Return a text that differs where the features or the span do."""
        return f"{self._rows.digest()} {self._span.start} {self._span.stop}"


def source_on_worker(
    settings: dict[str, Any], dataset: str, ids: Sequence[str], rows: dict[str, Any]
) -> EmbeddingSource:
    """Build the source of some embeddings on a worker; see `EmbeddingSource.task`.

    Raises
    ------
    HeadError, NotShared
        The worker sees another head, or other features, than the command.
    """
    trained, features = _loaded(settings["head"], settings["features"])
    if trained.tensors_sha256 != settings["tensors_sha256"]:
        raise HeadError(f"a worker sees another head in {settings['head']} than the command")
    found = _rows(features, rows["read"])
    if found.digest() != rows["digest"]:
        raise NotShared(f"a worker sees other features in {features.folder} than the command")
    return EmbeddingSource(
        trained, settings["side"], dataset, ids, found, rows["read"].__getitem__, features,
        Path(settings["head"]), tuple(settings["shape"]), threads=1,
    )  # fmt: skip


@lru_cache(maxsize=2)
def _loaded(head: str, features: str) -> tuple[TrainedHead, FeatureSet]:
    """Return a head and the features of one side, opened once in a process."""
    import torch

    # For good: tasks on other threads of this worker would put back what they found.
    torch.set_num_threads(1)
    return load_head(head), FeatureSet(Path(features))


def _rows(features: FeatureSet, read: Sequence[Sequence[str]]) -> Rows:
    """Return the rows that are each made from one or several features."""
    flat = FeatureRows(features, [row_id for ids in read for row_id in ids])
    if len(flat) == len(read):
        return flat
    return AveragedRows(flat, np.repeat(np.arange(len(read)), [len(ids) for ids in read]))
