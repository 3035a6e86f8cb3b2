"""Rows in chunks: the unit of embedding work, on a thread of this process or on a worker."""

from dataclasses import dataclass

from pipeline.heads.base import Head
from pipeline.heads.inputs.feature_rows import Features, RowNumbers, Rows
from pipeline.progress import FORWARD, READ, Stopwatch
from pipeline.shards.plan import Span

CHUNK_ROWS = 1024
IMAGES, CAPTIONS = "images", "captions"


@dataclass(frozen=True)
class RowChunk:
    """Consecutive rows of one side.

    Attributes
    ----------
    side : `IMAGES` or `CAPTIONS`.
    number : counts the chunks of the side from 0.
    span : the rows.
    """

    side: str
    number: int
    span: Span

    def __str__(self) -> str:
        return f"{self.side}-{self.number:05d}"


class ChunkRows:
    """The rows of a chunk, taken from all rows of its side."""

    def __init__(self, rows: Rows, span: Span, watch: Stopwatch) -> None:
        """Take the rows of the side, the chunk's span, and a stopwatch that reading is added to."""
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


def split_into_chunks(images: int, captions: int) -> list[RowChunk]:
    """Return the chunks of all images, then those of all captions.

    Parameters
    ----------
    images, captions : numbers of rows.
    """
    return [
        RowChunk(side, number, span)
        for side, rows in ((IMAGES, images), (CAPTIONS, captions))
        for number, span in enumerate(Span(0, rows).batches(CHUNK_ROWS))
    ]


def embed_chunk(head: Head, rows: Rows, chunk: RowChunk, watch: Stopwatch) -> Features:
    """Return the embeddings of one chunk, (n, dim) or (n, parts, dim) float32.

    Parameters
    ----------
    head : fitted.
    rows : all rows of the chunk's side.
    chunk : which of them are embedded.
    watch : the seconds of reading and of computing are added to it.
    """
    embed = head.embed_images if chunk.side == IMAGES else head.embed_captions
    spent = Stopwatch()
    with spent.timing(FORWARD):
        embedded = embed(ChunkRows(rows, chunk.span, spent))
    read = spent.seconds.get(READ, 0.0)
    watch.add(READ, read)
    watch.add(FORWARD, spent.seconds[FORWARD] - read)
    return embedded
