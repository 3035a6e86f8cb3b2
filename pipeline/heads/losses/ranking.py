"""Ranking losses as scores + choice of negatives + hinge and reduction, each a small function.

The score losses take a matrix `scores` (images, captions), higher is better, and `image_of_caption`
(captions,) int64, the row of each caption's image. Every caption with its image is one positive
pair. A pair's negatives are the captions of other images (the image is the anchor) and the
other images (the caption is the anchor); two captions of one image are never negatives of each
other. A batch with one image has no negatives, and its loss is 0. `over_prefixes` makes a
Matryoshka loss of any of them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.heads import HeadError


def sum_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return the hinges of every pair against all its negatives in the batch, summed.

    The sum over pairs (i, c) of the sums over c' and i' of max(0, margin - S(i, c) + S(i, c')) and
    max(0, margin - S(i, c) + S(i', c)): Vendrov et al. 2016, eq. (5) (E = -S); Qian & Lamberti
    2018, eq. (2); Kiros et al. 2014, eq. (6), with the whole batch as contrastive terms. The
    papers' batches have one caption an image; with several, each makes a pair.

    Parameters
    ----------
    scores : (images, captions).
    image_of_caption : (captions,) int64.
    margin : at least 0.

    Returns
    -------
    Tensor
        A scalar.
    """
    positive, captions, images = _split(scores, image_of_caption)
    own = positive[:, None]
    return hinges(own, captions, margin).sum() + hinges(own, images, margin).sum()


def mean_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return `sum_of_hinges` over the number of other images, for the start of a training.

    With `max_of_hinges` from the start, and few images, both sides fall to one point, where
    every hinge is the margin, and stay there. This loss is of that one's size, so that Adam's
    step sizes fit both.

    Parameters, result: as `sum_of_hinges`.
    """
    return sum_of_hinges(scores, image_of_caption, margin) / max(1, len(scores) - 1)


def info_nce(scores: Tensor, image_of_caption: Tensor, temperature: float) -> Tensor:
    """Return how badly each pair is picked out from its negatives, in nats, summed.

    The sum over pairs and both anchors of -log(e(i, c) / (e(i, c) + the sum of e of the anchor's
    negatives)), where e = exp(S / temperature). Van den Oord et al. 2018, eq. (4), in both
    directions. Siblings of a caption are neither its negatives nor its positives.

    Parameters
    ----------
    scores : (images, captions).
    image_of_caption : (captions,) int64.
    temperature : above 0.

    Returns
    -------
    Tensor
        A scalar.
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
    """Return the hinges of every pair against `k` random captions and `k` random images, summed.

    Kiros et al. 2014, eq. (6), whose contrastive terms are random. Deviation: they are drawn
    from the batch, without replacement and anew for each batch, where the paper draws them from
    the training set once an epoch. With fewer than `k` negatives all count.

    The other parameters and the result are those of `sum_of_hinges`.

    Parameters
    ----------
    k : at least 1.
    generator : gives the draws; the same state and batch give the same loss.
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
    """Return the hinges of pairs against captions and images drawn from the training set, summed.

    Kiros et al. 2014, eq. (6), as the paper has it: "chosen randomly from the training set". The
    batch is that of `pipeline.heads.inputs.batches.captions_with_drawn`: some pairs, then `k`
    captions of other images for each of them in turn. A drawn caption is a contrastive sentence
    of the pair's image, and its image a contrastive image of the pair's caption.

    Parameters
    ----------
    scores : (images, captions).
    image_of_caption : (captions,) int64, of pairs * (1 + k) captions.
    margin : at least 0.
    k : at least 1.

    Returns
    -------
    Tensor
        A scalar.
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
    """One negative of each kind for every pair; without one, the pair's own rows stand there.

    captions : (captions,) int64, a caption of another image.
    images : (captions,) int64, another image.
    """

    captions: Tensor
    images: Tensor


def hardest_negatives(scores: Tensor, image_of_caption: Tensor) -> Negatives:
    """Return the highest-scoring negatives of every pair, the first of equals."""
    _, captions, images = _split(scores.detach(), image_of_caption)
    return Negatives(captions.argmax(1), images.argmax(1))


def hinges_at(
    scores: Tensor, image_of_caption: Tensor, negatives: Negatives, margin: float
) -> Tensor:
    """Return the hinges of every pair against the given negatives, summed.

    The other parameters and the result are those of `sum_of_hinges`.

    Parameters
    ----------
    scores : (..., images, captions); all leading axes (Yan's pools) are summed.
    negatives : see `hardest_negatives`; they may come from other scores than these.
    """
    pair = torch.arange(len(image_of_caption), device=image_of_caption.device)
    positive = scores[..., image_of_caption, pair]
    by_image = hinges(positive, scores[..., image_of_caption, negatives.captions], margin)
    by_caption = hinges(positive, scores[..., negatives.images, pair], margin)
    by_image = by_image * (image_of_caption[negatives.captions] != image_of_caption)
    by_caption = by_caption * (negatives.images != image_of_caption)
    return by_image.sum() + by_caption.sum()


def max_of_hinges(scores: Tensor, image_of_caption: Tensor, margin: float) -> Tensor:
    """Return the hinges of every pair against its hardest negatives in the batch, summed.

    Faghri et al. 2018 (VSE++), eq. (6) (the maximum of hinges); Yan 2019, section 2.4. Of equal
    negatives the gradient goes to the first.

    Parameters, result: as `sum_of_hinges`.
    """
    return hinges_at(scores, image_of_caption, hardest_negatives(scores, image_of_caption), margin)


def _split(scores: Tensor, image_of_caption: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return every pair's own score (c,), and its scores with captions (c, c), images (c, i).

    c pairs, one a caption; scores that are no negative's are -inf, whose hinge is 0.
    """
    row = torch.arange(len(image_of_caption), device=image_of_caption.device)
    image = torch.arange(len(scores), device=image_of_caption.device)
    captions = scores[image_of_caption].masked_fill(
        image_of_caption[:, None] == image_of_caption[None, :], -torch.inf
    )
    images = scores.T.masked_fill(image_of_caption[:, None] == image[None, :], -torch.inf)
    return scores[image_of_caption, row], captions, images


def hinges(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Return max(0, margin + negative - positive) of scores that broadcast."""
    return (margin + negative - positive).clamp_min(0.0)


def over_prefixes(
    loss: Callable[[Tensor, Tensor], Tensor],
    images: Tensor,
    captions: Tensor,
    prefixes: Sequence[int],
    weights: Sequence[float],
) -> Tensor:
    """Return the loss of whole vectors plus the weighted losses of their prefixes.

    Kusupati et al. 2022, "Matryoshka Representation Learning", eq. (1), with a head's ranking loss.
    Prefixes are scaled to unit length, as `pipeline embed --dim` stores them.

    Parameters
    ----------
    loss : callable. Returns the loss, a scalar, of embedded images (i, d) and captions (c, d).
    images, captions : tensor (i, d) and (c, d). Embeddings as the head makes them.
    prefixes : sequence of int. Numbers of dimensions below d; none: the head's own loss alone.
    weights : sequence of float. One for each prefix; none: 1 for each, as in the paper.
    """
    total = loss(images, captions)
    for dim, weight in zip(prefixes, weights or [1.0] * len(prefixes), strict=True):
        sides = (F.normalize(side[:, :dim], dim=1) for side in (images, captions))
        total = total + weight * loss(*sides)
    return total


def require_prefixes(
    head: str, prefixes: Sequence[int], weights: Sequence[float], dim: int, similarity: str
) -> None:
    """Check that a head can be trained with prefixes.

    Parameters
    ----------
    head : str. The head's name, for the message.
    prefixes, weights : see `over_prefixes`.
    dim, similarity : int and str. Of the joint space.

    Raises
    ------
    HeadError
    """
    if prefixes and similarity != "cosine":
        raise HeadError(
            f"head {head!r}: matryoshka compares prefixes of unit length, by cosine, and the "
            f"similarity is {similarity}; leave it out, or set the similarity to cosine"
        )
    if prefixes and prefixes[-1] >= dim:
        raise HeadError(
            f"head {head!r}: matryoshka has a prefix of {prefixes[-1]} dimensions, and the joint "
            f"space has {dim}; use fewer dimensions"
        )
    if weights and len(weights) != len(prefixes):
        raise HeadError(
            f"head {head!r}: {len(weights)} matryoshka_weights found for {len(prefixes)} prefixes; "
            "set one for each, or none"
        )
