"""Bidirectional ranking losses, composed of scores, a choice of negatives, a hinge and a reduction.

Every caption forms a positive pair with its image. Negatives of a pair are the captions of other
images (anchor: the image) and the other images (anchor: the caption); captions of one image are not
negatives of each other. The loss of a batch with a single image is 0.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.heads import HeadError


def sum_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return the sum of hinges over all pairs and all their negatives in the batch, a scalar.

    max(0, margin - S(i, c) + S(i, c')) + max(0, margin - S(i, c) + S(i', c)), over pairs (i, c)
    and negatives c' and i'. The papers' batches have one caption per image; with several, each
    forms a pair.

    Source: Vendrov et al. 2016, eq. (5), with S = -E; Qian & Lamberti 2018, eq. (2).
    Relations: equivalent to Kiros et al. 2014, eq. (6), on the whole batch.

    Parameters
    ----------
    scores : (images, captions). Scores, higher is better.
    image_of_caption : (captions,) int64. Image row of each caption.
    margin : float. Margin of the hinge, at least 0.

    Examples
    --------
    >>> scores, image_of_caption = torch.tensor([[0.9, 0.8], [0.1, 0.5]]), torch.tensor([0, 1])
    >>> round(float(sum_of_hinges(scores, image_of_caption, margin=0.2)), 3)
    0.6
    """
    positive, captions, images = _split(scores, image_of_caption)
    positives = positive[:, None]
    return hinges(positives, captions, margin).sum() + hinges(positives, images, margin).sum()


def mean_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return `sum_of_hinges` divided by the number of other images, to start a training with.

    `max_of_hinges` from the start, on few images, can collapse both sides to one point, where every
    hinge equals the margin. This loss has the same magnitude, so that one learning rate suits both.
    """
    return sum_of_hinges(scores, image_of_caption, margin) / max(1, len(scores) - 1)


def info_nce(scores: Tensor, image_of_caption: Tensor, temperature: float) -> Tensor:
    """Return the InfoNCE loss over both anchors, in nats, summed over pairs: a scalar.

    Cross-entropy of the positive among the anchor's negatives, with logits S / temperature.

    Source: Van den Oord et al. 2018, eq. (4), in both directions.
    Relations: equivalent to CLIP's loss, but other captions of the same image are neither negatives
        nor positives, and terms are summed, not averaged.

    Parameters
    ----------
    scores, image_of_caption : (images, captions), (captions,) int64. See `sum_of_hinges`.
    temperature : float. Temperature, above 0.

    Examples
    --------
    >>> round(float(info_nce(torch.eye(2), torch.tensor([0, 1]), temperature=1.0)), 3)
    1.253
    """
    positive, captions, images = _split(scores / temperature, image_of_caption)
    positives = positive[:, None]
    by_image, by_caption = (
        torch.logsumexp(torch.cat((positives, negatives), dim=1), dim=1) - positive
        for negatives in (captions, images)
    )
    return by_image.sum() + by_caption.sum()


def sampled_contrast(
    scores: Tensor, image_of_caption: Tensor, margin: float, k: int, generator: torch.Generator
) -> Tensor:
    """Return the sum of hinges of every pair over `k` random captions and `k` random images.

    Source: Kiros et al. 2014, eq. (6), but contrastive terms are sampled from the batch, without
        replacement in each batch, where the paper samples from the training set once per epoch.
    Relations: `sum_of_hinges` over a part of the negatives; all are used if there are at most `k`.

    Parameters
    ----------
    scores, image_of_caption : (images, captions), (captions,) int64. See `sum_of_hinges`.
    margin : float. Margin of the hinge, at least 0.
    k : int. Number of negatives per side, at least 1.
    generator : torch.Generator. Source of the draws.
    """
    positive, captions, images = _split(scores, image_of_caption)
    positives = positive[:, None]

    def drawn(negative: Tensor) -> Tensor:
        keys = torch.rand(negative.shape, generator=generator, device=generator.device)
        keys = keys.to(negative.device).masked_fill(negative == -torch.inf, -1.0)
        return negative.gather(1, keys.topk(min(k, keys.shape[1]), dim=1).indices)

    by_image = hinges(positives, drawn(captions), margin)
    by_caption = hinges(positives, drawn(images), margin)
    return by_image.sum() + by_caption.sum()


def contrast_with_drawn(scores: Tensor, image_of_caption: Tensor, margin: float, k: int) -> Tensor:
    """Return the sum of hinges of pairs over negatives sampled from the whole training set.

    A sampled caption is a contrastive caption of the pair's image, and its image a contrastive
    image of the pair's caption.

    Source: Kiros et al. 2014, eq. (6): terms "chosen randomly from the training set".
    Relations: as `sampled_contrast`, but on the batches of
        `pipeline.heads.inputs.batches.captions_with_drawn`.

    Parameters
    ----------
    scores : (images, captions). Scores, higher is better.
    image_of_caption : (pairs * (1 + k),) int64. Image row of each caption.
    margin : float. Margin of the hinge, at least 0.
    k : int. Number of negatives per pair, at least 1.
    """
    pairs = len(image_of_caption) // (1 + k)
    pair = torch.arange(pairs, device=image_of_caption.device)[:, None]
    image, drawn = image_of_caption[:pairs, None], image_of_caption[pairs:].view(pairs, k)
    captions = torch.arange(pairs, len(image_of_caption), device=image.device).view(pairs, k)
    positive = scores[image, pair]
    by_image = hinges(positive, scores[image, captions], margin)
    by_caption = hinges(positive, scores[drawn, pair], margin)
    return by_image.sum() + by_caption.sum()


class Negatives(NamedTuple):
    """One negative of each kind for every pair; the pair's own rows if it has no negative."""

    captions: Tensor  # (captions,) int64, row of a caption of another image
    images: Tensor  # (captions,) int64, row of another image


def hardest_negatives(scores: Tensor, image_of_caption: Tensor) -> Negatives:
    """Return the highest-scoring negatives of every pair; the first one on ties."""
    _, captions, images = _split(scores.detach(), image_of_caption)
    return Negatives(captions.argmax(1), images.argmax(1))


def hinges_at(
    scores: Tensor, image_of_caption: Tensor, negatives: Negatives, margin: float
) -> Tensor:
    """Return the sum of hinges over given negatives, and over leading axes of `scores`."""
    pair = torch.arange(len(image_of_caption), device=image_of_caption.device)
    positive = scores[..., image_of_caption, pair]
    by_image = hinges(positive, scores[..., image_of_caption, negatives.captions], margin)
    by_caption = hinges(positive, scores[..., negatives.images, pair], margin)
    by_image = by_image * (image_of_caption[negatives.captions] != image_of_caption)
    by_caption = by_caption * (negatives.images != image_of_caption)
    return by_image.sum() + by_caption.sum()


def max_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return the sum of hinges of every pair over its hardest negatives in the batch, a scalar.

    Source: Faghri et al. 2018 (VSE++), eq. (6); Yan 2019, section 2.4.
    Relations: equivalent to `sum_of_hinges`, but with the maximum over negatives in place of the
        sum. On ties the first negative gets the gradient.

    Parameters
    ----------
    scores, image_of_caption : (images, captions), (captions,) int64. See `sum_of_hinges`.
    margin : float. Margin of the hinge, at least 0.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.8, 0.85], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]])
    >>> losses = [loss(scores, torch.arange(3), 0.2) for loss in (sum_of_hinges, max_of_hinges)]
    >>> [round(float(loss), 2) for loss in losses]
    [1.3, 1.2]
    """
    return hinges_at(scores, image_of_caption, hardest_negatives(scores, image_of_caption), margin)


def _split(scores: Tensor, image_of_caption: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each pair's score (c,), and scores with captions (c, c), images (c, i), else -inf."""
    row = torch.arange(len(image_of_caption), device=image_of_caption.device)
    image = torch.arange(len(scores), device=image_of_caption.device)
    captions = scores[image_of_caption].masked_fill(
        image_of_caption[:, None] == image_of_caption[None, :], -torch.inf
    )
    images = scores.T.masked_fill(image_of_caption[:, None] == image[None, :], -torch.inf)
    return scores[image_of_caption, row], captions, images


def hinges(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Return max(0, margin + negative - positive), with broadcasting."""
    return (margin + negative - positive).clamp_min(0.0)


def over_prefixes(
    loss: Callable[[Tensor, Tensor], Tensor],
    images: Tensor,
    captions: Tensor,
    prefixes: Sequence[int],
    weights: Sequence[float],
) -> Tensor:
    """Return the loss of the whole vectors plus the weighted losses of their prefixes (Matryoshka).

    Prefixes are L2-normalised, as `pipeline embed --dim` stores them.

    Source: Kusupati et al. 2022, "Matryoshka Representation Learning", eq. (1).
    Relations: as sentence-transformers' `MatryoshkaLoss`, around any ranking loss of this module.

    Parameters
    ----------
    loss : callable. Returns the scalar loss of embedded images (i, d) and captions (c, d).
    images, captions : (i, d) and (c, d). Embeddings.
    prefixes : sequence of int. Prefix lengths below d; empty: the loss alone.
    weights : sequence of float. Loss weight of each prefix; empty: 1 each, as in the paper.
    """
    total = loss(images, captions)
    for dim, weight in zip(prefixes, weights or [1.0] * len(prefixes), strict=True):
        sides = (F.normalize(side[:, :dim], dim=1) for side in (images, captions))
        total = total + weight * loss(*sides)
    return total


def require_prefixes(
    head: str, prefixes: Sequence[int], weights: Sequence[float], dim: int, similarity: str
) -> None:
    """Raise HeadError if the settings of a Matryoshka loss contradict those of `head`."""
    if prefixes and similarity != "cosine":
        raise HeadError(
            f"head {head!r}: matryoshka compares L2-normalised prefixes by cosine, but the "
            f"similarity is {similarity}; leave it out, or set the similarity to cosine"
        )
    if prefixes and prefixes[-1] >= dim:
        raise HeadError(
            f"head {head!r}: matryoshka has a prefix of {prefixes[-1]} dimensions, but the "
            f"embedding space has {dim}; use shorter prefixes"
        )
    if weights and len(weights) != len(prefixes):
        raise HeadError(
            f"head {head!r}: {len(weights)} matryoshka_weights found for {len(prefixes)} prefixes; "
            "set one for each, or none"
        )
