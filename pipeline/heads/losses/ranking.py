"""Bidirectional ranking losses, composed of scores, a choice of negatives, a hinge and a reduction.

Losses read `scores` (images, captions), higher is better, and `image_of_caption` (captions,) int64,
the image row of each caption. Every caption forms a positive pair with its image. Negatives of a
pair are the captions of other images (anchor: the image) and the other images (anchor: the
caption); captions of one image are not negatives of each other. The loss of a batch with a single
image is 0. `over_prefixes` makes a Matryoshka loss of any ranking loss.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.heads import HeadError


def sum_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return the sum of hinges over all pairs and all their negatives in the batch.

    Sum over pairs (i, c), c' and i' of max(0, margin - S(i, c) + S(i, c')) and max(0, margin -
    S(i, c) + S(i', c)). Vendrov et al. 2016, eq. (5), with S = -E; Qian & Lamberti 2018, eq. (2).
    Equivalent to Kiros et al. 2014, eq. (6), but with the whole batch as contrastive terms. The
    papers' batches have one caption per image; with several, each forms a pair.

    Parameters
    ----------
    scores : (images, captions) scores.
    image_of_caption : (captions,) int64.
    margin : float. Margin of the hinge, at least 0.

    Returns
    -------
    Tensor
        Scalar.
    """
    positive, captions, images = _split(scores, image_of_caption)
    own = positive[:, None]
    return hinges(own, captions, margin).sum() + hinges(own, images, margin).sum()


def mean_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return `sum_of_hinges` divided by the number of other images, to start a training with.

    `max_of_hinges` from the start, on few images, can collapse both sides to one point, where every
    hinge equals the margin. This loss has the same magnitude, so that one learning rate of Adam
    suits both. Parameters and result: see `sum_of_hinges`.
    """
    return sum_of_hinges(scores, image_of_caption, margin) / max(1, len(scores) - 1)


def info_nce(scores: Tensor, image_of_caption: Tensor, temperature: float) -> Tensor:
    """Return the InfoNCE loss over both anchors, in nats, summed over pairs.

    Van den Oord et al. 2018, eq. (4), in both directions: cross-entropy of the positive among the
    anchor's negatives, with logits S / temperature. Equivalent to CLIP's loss, but other captions
    of the same image are neither negatives nor positives, and terms are summed, not averaged.

    Parameters
    ----------
    scores : (images, captions) scores.
    image_of_caption : (captions,) int64.
    temperature : float. Temperature, above 0.

    Returns
    -------
    Tensor
        Scalar.
    """
    positive, captions, images = _split(scores / temperature, image_of_caption)
    own = positive[:, None]
    by_image, by_caption = (
        torch.logsumexp(torch.cat((own, negatives), dim=1), dim=1) - positive
        for negatives in (captions, images)
    )
    return by_image.sum() + by_caption.sum()


def sampled_contrast(
    scores: Tensor, image_of_caption: Tensor, margin: float, k: int, generator: torch.Generator
) -> Tensor:
    """Return the sum of hinges of every pair over `k` random captions and `k` random images.

    Equivalent to Kiros et al. 2014, eq. (6), but contrastive terms are sampled from the batch,
    without replacement in each batch, where the paper samples from the training set once per
    epoch. With fewer than `k` negatives, all are used.

    Parameters
    ----------
    scores, image_of_caption, margin : see `sum_of_hinges`.
    k : int. Number of negatives per side, at least 1.
    generator : torch.Generator. Source of the draws.
    """
    positive, captions, images = _split(scores, image_of_caption)
    own = positive[:, None]

    def drawn(negative: Tensor) -> Tensor:
        keys = torch.rand(negative.shape, generator=generator, device=generator.device)
        keys = keys.to(negative.device).masked_fill(negative == -torch.inf, -1.0)
        return negative.gather(1, keys.topk(min(k, keys.shape[1]), dim=1).indices)

    by_image = hinges(own, drawn(captions), margin)
    by_caption = hinges(own, drawn(images), margin)
    return by_image.sum() + by_caption.sum()


def contrast_with_drawn(scores: Tensor, image_of_caption: Tensor, margin: float, k: int) -> Tensor:
    """Return the sum of hinges of pairs over negatives sampled from the whole training set.

    Kiros et al. 2014, eq. (6): contrastive terms "chosen randomly from the training set". The batch
    is that of `pipeline.heads.inputs.batches.captions_with_drawn`: some pairs, then `k` captions
    of other images for each pair. A sampled caption is a contrastive caption of the pair's image,
    and its image a contrastive image of the pair's caption.

    Parameters
    ----------
    scores : (images, captions) scores.
    image_of_caption : (captions,) int64, with pairs * (1 + k) captions.
    margin : float. Margin of the hinge, at least 0.
    k : int. Number of negatives per pair, at least 1.

    Returns
    -------
    Tensor
        Scalar.
    """
    pairs = len(image_of_caption) // (1 + k)
    pair = torch.arange(pairs, device=image_of_caption.device)[:, None]
    own, drawn = image_of_caption[:pairs, None], image_of_caption[pairs:].view(pairs, k)
    captions = torch.arange(pairs, len(image_of_caption), device=own.device).view(pairs, k)
    positive = scores[own, pair]
    by_image = hinges(positive, scores[own, captions], margin)
    by_caption = hinges(positive, scores[drawn, pair], margin)
    return by_image.sum() + by_caption.sum()


class Negatives(NamedTuple):
    """One negative of each kind for every pair; the pair's own rows if it has no negative.

    Attributes
    ----------
    captions : (captions,) int64, row of a caption of another image.
    images : (captions,) int64, row of another image.
    """

    captions: Tensor
    images: Tensor


def hardest_negatives(scores: Tensor, image_of_caption: Tensor) -> Negatives:
    """Return the highest-scoring negatives of every pair; the first one on ties."""
    _, captions, images = _split(scores.detach(), image_of_caption)
    return Negatives(captions.argmax(1), images.argmax(1))


def hinges_at(
    scores: Tensor, image_of_caption: Tensor, negatives: Negatives, margin: float
) -> Tensor:
    """Return the sum of hinges of every pair over the given negatives.

    Parameters
    ----------
    scores : (..., images, captions) scores; leading axes (Yan's pools) are summed.
    image_of_caption, margin : see `sum_of_hinges`.
    negatives : see `hardest_negatives`; they may have been mined with other scores.
    """
    pair = torch.arange(len(image_of_caption), device=image_of_caption.device)
    positive = scores[..., image_of_caption, pair]
    by_image = hinges(positive, scores[..., image_of_caption, negatives.captions], margin)
    by_caption = hinges(positive, scores[..., negatives.images, pair], margin)
    by_image = by_image * (image_of_caption[negatives.captions] != image_of_caption)
    by_caption = by_caption * (negatives.images != image_of_caption)
    return by_image.sum() + by_caption.sum()


def max_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return the sum of hinges of every pair over its hardest negatives in the batch.

    Faghri et al. 2018 (VSE++), eq. (6); Yan 2019, section 2.4. Equivalent to `sum_of_hinges`, but
    with the maximum over negatives in place of the sum. On ties the first negative gets the
    gradient. Parameters and result: see `sum_of_hinges`.
    """
    return hinges_at(scores, image_of_caption, hardest_negatives(scores, image_of_caption), margin)


def _split(scores: Tensor, image_of_caption: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return every pair's own score (c,), and its scores with captions (c, c) and images (c, i).

    c is the number of pairs (captions). Non-negatives are masked by -inf, whose hinge is 0.
    """
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
    """Return the loss of the whole vectors plus the weighted losses of their prefixes.

    Kusupati et al. 2022, "Matryoshka Representation Learning", eq. (1), with a ranking loss.
    Prefixes are L2-normalised, as `pipeline embed --dim` stores them.

    Parameters
    ----------
    loss : callable. Returns the scalar loss of embedded images (i, d) and captions (c, d).
    images, captions : tensor (i, d) and (c, d). Embeddings.
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
    """Check the settings of a Matryoshka loss.

    Parameters
    ----------
    head : str. Name of the head, for messages.
    prefixes, weights : see `over_prefixes`.
    dim, similarity : int and str. Dimension and similarity of the embedding space.

    Raises
    ------
    HeadError
    """
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
