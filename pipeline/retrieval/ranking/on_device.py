"""Ranks on a torch device, such as a GPU: blocks are compared and counted there.

Embeddings are sent once, and only counts are returned. Similarities are those of
`pipeline.retrieval.similarity`, in float64 and rounded to float32 on the device, so that ties are
the same as on the CPU.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.blocks import Axis, Ranks, Scores
from pipeline.retrieval.ranking.ranks import Ranker, rank_both_ways
from pipeline.retrieval.similarity import CANCELLED, NEAR, SIMILARITIES, Vectors
from pipeline.retrieval.torch_scores import SCORES
from pipeline.store.devices import DeviceError, usable_device

BLOCK_ELEMENTS = 1 << 25
"""Similarities held at once, 0.25 GiB in float64; for sets, fewer by the number of parts."""

_SENT_NUMBERS = 1 << 24


def rank_on(device: str) -> Ranker:
    """Return `rank_both_ways` on a torch device.

    The ranks are those of the CPU, except for pairs of similarities that differ by about 1e-16 and
    are separated by a boundary between two float32 numbers.
    """
    there = usable_device(device)
    try:
        torch.zeros(1, dtype=torch.float64, device=there)
    except (TypeError, RuntimeError) as error:
        raise DeviceError(
            f"device {device!r} has no float64 ({str(error).splitlines()[0]}), which comparing "
            "similarities requires; use device 'cpu'"
        ) from error

    def rank(e: Embeddings) -> tuple[Ranks, Ranks]:
        parts = max(side[0].size for side in (e.image_embeddings, e.caption_embeddings))
        elements = max(1, BLOCK_ELEMENTS * e.image_embeddings.shape[-1] // parts)
        try:
            sides = _held(e.image_embeddings, there), _held(e.caption_embeddings, there)
            return rank_both_ways(e, elements, DeviceBlock.of, sides)
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"device {device!r} has too little memory left for the embeddings and a block of "
                f"{elements} pairs ({str(error).splitlines()[0]}); end other programs there, or "
                "use device 'cpu'"
            ) from error

    return rank


@dataclass(frozen=True, eq=False)
class DeviceBlock:
    """A `Block`, (images, captions) float32 on the device, computed and counted by torch."""

    scores: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, similarity: str, images: Tensor, captions: Tensor) -> "DeviceBlock":
        """Compare all images with all captions, float32 on one device."""
        return cls(similarities(similarity, images, captions).float())

    def finite(self) -> bool:
        """Return whether all similarities are finite."""
        # The extremes are NaN if a similarity is: one pass over the block.
        return bool(torch.stack(self.scores.aminmax()).isfinite().all())

    def pairs(self, images: Ranks, captions: Ranks) -> Scores:
        """Return the similarities of given rows and columns."""
        device = self.scores.device
        scores = self.scores[_sent(images, device), _sent(captions, device)]
        return np.asarray(scores.cpu().numpy())

    def before(self, best: Scores, best_places: Ranks, places: Ranks, gallery: Axis) -> Ranks:
        """Count for each query the items that rank before its correct one."""
        device = self.scores.device
        thresholds, first = (_sent(of, device).unsqueeze(gallery) for of in (best, best_places))
        # In place: each mask is as large as the block.
        before = self.scores == thresholds
        before &= _sent(places, device).unsqueeze(1 - gallery) < first
        before |= self.scores > thresholds
        return np.asarray(before.sum(gallery).cpu().numpy())


def similarities(name: str, images: Tensor, captions: Tensor) -> Tensor:
    """Return the similarities of a name, (n, ...) and (m, ...) -> (n, m) float64.

    They equal `between` of `prepare` in `pipeline.retrieval.similarity`, including exact zeros.
    """
    images, captions = images.double(), captions.double()
    if name == "cosine" or SIMILARITIES[name].sets:
        images, captions = _unit_rows(images), _unit_rows(captions)
    scores = SCORES[name](images, captions)
    if name == "cosine":
        return scores.masked_fill_(scores.abs() < CANCELLED, 0.0)
    if name == "euclidean":
        squares = images.square().sum(1)[:, None] + captions.square().sum(1)[None, :]
        pairs = (scores > squares.mul_(-NEAR)).nonzero()
        for some in pairs.split(max(1, _SENT_NUMBERS // images.shape[1])):
            of_images, of_captions = some.unbind(1)
            difference = images[of_images] - captions[of_captions]
            scores[of_images, of_captions] = -difference.square().sum(1)
    return scores


def _unit_rows(rows: Tensor) -> Tensor:
    """Scale rows (..., dim) to length 1, however short; a zero row stays zero."""
    norms = rows.square().sum(-1, keepdim=True).sqrt_()
    return rows / norms.masked_fill_(norms == 0.0, 1.0)


def _held(rows: Vectors, device: torch.device) -> Tensor:
    """Copy embeddings to the device, some at a time: stored rows may be quantised, or in a file."""
    held = torch.empty(rows.shape, device=device)
    step = max(1, _SENT_NUMBERS // rows[:1].size)
    for start in range(0, len(rows), step):
        held[start : start + step] = _sent(rows[start : start + step], device)
    return held


def _sent(array: npt.NDArray, device: torch.device) -> Tensor:
    """Copy an array to the device."""
    # torch warns about read-only arrays, and does not support negative strides.
    return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)
