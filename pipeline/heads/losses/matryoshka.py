"""Matryoshka losses: the first dimensions of a vector are trained to be a vector of their own.

Kusupati et al. 2022, "Matryoshka Representation Learning", eq. (1): the sum over nested prefixes of
their weights times the loss of that prefix. Here the loss is a head's ranking loss, and prefixes
are scaled to unit length, as `pipeline embed --dim` stores them.
"""

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.nn import functional as F

from pipeline.heads import HeadError


def over_prefixes(
    loss: Callable[[Tensor, Tensor], Tensor],
    images: Tensor,
    captions: Tensor,
    prefixes: Sequence[int],
    weights: Sequence[float],
) -> Tensor:
    """Return the loss of whole vectors plus the weighted losses of their prefixes.

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
            f"space has {dim}; give fewer dimensions"
        )
    if weights and len(weights) != len(prefixes):
        raise HeadError(
            f"head {head!r}: {len(weights)} matryoshka_weights found for {len(prefixes)} prefixes; "
            "give one for each, or none"
        )
