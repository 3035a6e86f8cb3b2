"""Differentiable scores of images with captions: matrices (images, captions), higher is better.

They equal the similarities of `pipeline.retrieval.similarity` up to rounding, so that training and
retrieval rank alike; `SCORES` has them by the same names. They are differentiable and run on any
device, but omit what only a ranking needs: small rounding noise is kept, and a vector shorter than
1e-12 is not normalised. `pipeline.retrieval.ranking.on_device` adds both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.retrieval.similarity import CROSS_ATTENTIONS, FLOOR, CrossAttention

Score = Callable[[Tensor, Tensor], Tensor]

BLOCK_ELEMENTS = 1 << 21
"""Elements of one block of images x captions; a block's buffers are a few times as large."""


def cosine(images: Tensor, captions: Tensor) -> Tensor:
    """Return cosines of (i, d) and (c, d); 0 for a zero vector."""
    return F.normalize(images, dim=1) @ F.normalize(captions, dim=1).T


def negative_squared_distance(images: Tensor, captions: Tensor) -> Tensor:
    """Return -|v - s|^2 of (i, d) and (c, d); Qian & Lamberti 2018, eq. (1)."""
    squares = images.square().sum(1)[:, None] + captions.square().sum(1)[None, :]
    return 2.0 * dot(images, captions) - squares


def dot(images: Tensor, captions: Tensor) -> Tensor:
    """Return inner products of (i, d) and (c, d)."""
    return images @ captions.T


def order(images: Tensor, captions: Tensor) -> Tensor:
    """Return -sum_d max(0, s_d - v_d)^2 of images v (i, d) and captions s (c, d)."""
    # Vendrov et al. 2016, eq. (3), negated: a caption is more general than its image.
    return _by_captions(_order_block, images, captions, images.numel())


def scan(images: Tensor, captions: Tensor, attention: CrossAttention) -> Tensor:
    """Return Stacked Cross Attention scores (Lee et al. 2018, eqs. 1-8), (i, c).

    Images are (i, regions, d), captions (c, words, d); parts are scaled to unit length. Absent
    parts are zero vectors, which neither attend nor are attended to; a row without parts scores 0
    with everything. Let the queries be the words and the context the regions ("t2i"), or the
    reverse ("i2t"); c_rq is the cosine of context part r and query q.

    - n_rq = max(0, c_rq) / sqrt(sum_q' max(0, c_rq')^2): clipped, and normalised over the queries
    - a_q = sum_r w_rq x_r with w_rq = softmax over r of lambda_softmax * n_rq
    - R_q = cosine of query q and a_q
    - score: the mean of R_q ("avg"), or log(sum_q exp(lambda_lse * R_q)) / lambda_lse ("lse")

    Norms below `FLOOR` count as `FLOOR`. The authors' own program clips with slope 0.1 below 0; the
    paper and this function with 0.
    """
    regions, words = images.shape[1], captions.shape[1]
    block = partial(_scan_block, attention=attention)
    per_caption = len(images) * regions * words
    return _by_captions(
        block, F.normalize(images, dim=2), F.normalize(captions, dim=2), per_caption
    )


SCORES: dict[str, Score] = {
    "cosine": cosine,
    "euclidean": negative_squared_distance,
    "dot": dot,
    "order": order,
    **{name: partial(scan, attention=a) for name, a in CROSS_ATTENTIONS.items()},
}
"""Score function of every similarity in `pipeline.retrieval.similarity.SIMILARITIES`, by name."""


def attended_similarities(nodes: Tensor, context: Tensor) -> Tensor:
    """Return the similarity (n, a) of nodes (n, a, d) to what they attend to in (n, b, d).

    Yan 2019, section 2.5.2: with all nodes scaled to unit length, the inner product of node u and
    sum_j softmax_j(u . x_j) x_j over the row's context x. Absent nodes are zero vectors; 0 for them
    and for contexts without nodes.
    """
    inner = torch.einsum("nad,nbd->nab", F.normalize(nodes, dim=2), F.normalize(context, dim=2))
    weights = inner.exp() * present(context)[:, None, :]
    return (weights * inner).sum(2) / weights.sum(2).clamp_min(FLOOR)


def present(parts: Tensor) -> Tensor:
    """Return (n, parts) bool: whether each part of (n, parts, d) is not a zero vector."""
    return (parts != 0).any(2)


class _Recomputed(torch.autograd.Function):
    """Scores of a block with recomputation in the backward pass, which stores only the inputs."""

    @staticmethod
    def forward(ctx: Any, block: Score, images: Tensor, captions: Tensor) -> Tensor:
        ctx.block = block
        ctx.save_for_backward(images, captions)
        return block(images, captions)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows = tuple(side.detach().requires_grad_() for side in ctx.saved_tensors)
        with torch.enable_grad():
            scores = ctx.block(*rows)
        return None, *torch.autograd.grad(scores, rows, gradient)


def _by_captions(block: Score, images: Tensor, captions: Tensor, per_caption: int) -> Tensor:
    """Concatenate block(images, some captions) over blocks of captions, recomputed backward."""
    size = max(1, BLOCK_ELEMENTS // max(1, per_caption))
    blocks = [_Recomputed.apply(block, images, some) for some in captions.split(size)]
    return torch.cat(blocks, dim=1)


def _order_block(images: Tensor, captions: Tensor) -> Tensor:
    return -(captions[None, :, :] - images[:, None, :]).clamp_min(0.0).square().sum(2)


def _scan_block(images: Tensor, captions: Tensor, attention: CrossAttention) -> Tensor:
    if attention.queries == "captions":
        return _attend(images, captions, attention)
    return _attend(captions, images, attention).T


def _attend(context: Tensor, queries: Tensor, attention: CrossAttention) -> Tensor:
    """Return scores (n, m) of contexts (n, a, d) and queries (m, b, d), parts of unit length."""
    (n, a, d), (m, b, _) = context.shape, queries.shape
    there, asks = present(context), present(queries)
    cosines = (context.reshape(n * a, d) @ queries.reshape(m * b, d).T).view(n, a, m, b)
    clipped = F.normalize(cosines.clamp_min(0.0), dim=3, eps=FLOOR)
    # Unnormalised: a cosine does not depend on the length of the attended vector.
    weights = (attention.softmax * clipped).exp() * there[:, :, None, None]
    gram = context @ context.transpose(1, 2)
    spread = torch.bmm(gram, weights.view(n, a, m * b)).view(n, a, m, b)
    shortest = FLOOR * weights.sum(1).clamp_min(1.0)
    length = (weights * spread).sum(1).clamp_min(shortest.square()).sqrt()
    relevance = (weights * cosines).sum(1) / length
    if attention.lse is None:
        scores = (relevance * asks).sum(2) / asks.sum(1).clamp_min(1)
    else:
        terms = (attention.lse * relevance).exp() * asks
        scores = (terms.sum(2) + ~asks.any(1)).log() / attention.lse
    return scores * there.any(1)[:, None]
