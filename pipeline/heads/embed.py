"""Features through a trained module, and how well the embeddings of a split retrieve."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from pipeline.devices import one_core_each
from pipeline.heads.base import Head
from pipeline.heads.data.pairs import Pairs
from pipeline.heads.data.rows import Features, RowNumbers, Rows, in_blocks
from pipeline.heads.errors import HeadError
from pipeline.progress import FORWARD, READ, Progress, Stopwatch, no_progress
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import recall_table
from pipeline.shards.plan import Span

# Enough for full matrix products, few enough for a long caption's activations.
_ROWS = 512

FIGURES = (
    "image_to_text_r1",
    "text_to_image_r1",
    "image_to_text_r10",
    "text_to_image_r10",
    "rsum",
)


def require_fitted(net: nn.ModuleDict | None) -> nn.ModuleDict:
    """Return a head's modules.

    Raises
    ------
    HeadError
        There are none yet.
    """
    if net is None:
        raise HeadError("this head has not learnt anything yet; fit it or load a trained one")
    return net


@torch.inference_mode()
def embed(module: nn.Module, rows: Rows, device: torch.device) -> Features:
    """Return the embeddings (n, ...) float32 of all rows, each by itself.

    Parameters
    ----------
    module : in evaluation mode, on `device`; from (n, *row_shape) float32 to (n, ...) float32.
    rows : at least one.
    """
    chunks = [
        module(torch.from_numpy(block).to(device)).cpu().numpy() for block in in_blocks(rows, _ROWS)
    ]
    return np.concatenate(chunks)


def retrieval_figures(
    net: nn.ModuleDict, similarity: str, pairs: Pairs, device: torch.device
) -> dict[str, float]:
    """Return R@1 and R@10 in both directions and rsum of a split, in percent.

    Raises
    ------
    HeadError
        An embedding is not finite.
    """
    images = embed(net["image"], pairs.images, device)
    captions = embed(net["caption"], pairs.captions, device)
    if not (np.isfinite(images).all() and np.isfinite(captions).all()):
        raise HeadError(
            "training diverged: an embedding of the validation split is not finite; lower the "
            "learning rate, or check the features for outliers"
        )
    table = recall_table(
        Embeddings(
            pairs.image_ids,
            images,
            pairs.caption_ids,
            pairs.caption_image_ids,
            captions,
            similarity,
            {},
        )
    )
    return {name: float(table[name]) for name in FIGURES}


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
    progress: Progress = no_progress,
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
