"""Embedding in parts of some rows each, so that the result does not depend on who does the work.

A matrix product of other rows, or on another number of threads, may differ in its last bits:
parts are the same wherever they are embedded, and each is embedded on one core.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pipeline.devices import one_core_each
from pipeline.heads.interface import Head
from pipeline.heads.rows import Features, RowNumbers, Rows
from pipeline.shards.plan import Span
from pipeline.shards.progress import Progress, silent
from pipeline.shards.stopwatch import FORWARD, READ, Stopwatch

PART_ROWS = 1024
IMAGES, CAPTIONS = "images", "captions"


@dataclass(frozen=True)
class Part:
    """Some rows of one side: `IMAGES` or `CAPTIONS`, and a number from 0."""

    side: str
    number: int
    span: Span

    def __str__(self) -> str:
        return f"{self.side}-{self.number:05d}"


class PartRows:
    """The rows of a span of other rows."""

    def __init__(self, rows: Rows, span: Span, watch: Stopwatch) -> None:
        """Take the rows; the time that reading them takes is noted."""
        self._rows, self._span, self._watch = rows, span, watch
        self.row_shape: tuple[int, ...] = rows.row_shape

    def __len__(self) -> int:
        return len(self._span)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,); see `Rows.take`."""
        with self._watch.timing(READ):
            return self._rows.take(rows + self._span.start)

    def digest(self) -> str:
        """Return a text that differs where the features or the span do."""
        return f"{self._rows.digest()} {self._span.start} {self._span.stop}"


def parts_of(images: int, captions: int) -> list[Part]:
    """Return all parts of so many images and captions."""
    return [
        Part(side, number, span)
        for side, rows in ((IMAGES, images), (CAPTIONS, captions))
        for number, span in enumerate(Span(0, rows).batches(PART_ROWS))
    ]


def embed_part(head: Head, rows: Rows, part: Part, watch: Stopwatch) -> Features:
    """Return the embeddings of one part, (n, dim) or (n, parts, dim) float32.

    Parameters
    ----------
    head : fitted. rows : of the part's side. watch : gets the seconds by stage.
    """
    embed = head.embed_images if part.side == IMAGES else head.embed_captions
    spent = Stopwatch()
    with spent.timing(FORWARD):
        embedded = embed(PartRows(rows, part.span, spent))
    read = spent.seconds.get(READ, 0.0)
    watch.add(READ, read)
    watch.add(FORWARD, spent.seconds[FORWARD] - read)
    return embedded


def embed_here(
    head: Head,
    images: Rows,
    captions: Rows,
    progress: Progress = silent,
    watch: Stopwatch | None = None,
) -> tuple[Features, Features]:
    """Return the embeddings of images and captions, made in this process, a part on each core."""
    watch = watch or Stopwatch()
    sides = {IMAGES: images, CAPTIONS: captions}
    parts = parts_of(len(images), len(captions))
    total, done = len(images) + len(captions), 0
    found: dict[str, list[Features]] = {IMAGES: [], CAPTIONS: []}
    with one_core_each(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        embedded = pool.map(lambda part: embed_part(head, sides[part.side], part, watch), parts)
        for part, rows in zip(parts, embedded, strict=True):
            found[part.side].append(rows)
            done += len(rows)
            progress(done, total, 0)
    return np.concatenate(found[IMAGES]), np.concatenate(found[CAPTIONS])
