"""Ranking losses as scores + choice of negatives + hinge and reduction, each a small function.

The score losses take a matrix `scores` (images, captions), higher is better, and `owner`
(captions,) int64, the row of each caption's image. Every caption with its image is one positive
pair. A pair's negatives are the captions of other images (the image is the anchor) and the
other images (the caption is the anchor); two captions of one image are never negatives of each
other. A batch with one image has no negatives, and its loss is 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.heads.scores import attended_similarities, present

# Inside the root, so that the gradient of equal points is finite; then d(x, x) = 0.01. The
# two-branch authors' own program has the same constant.
DISTANCE_FLOOR = 1e-4


def sum_of_hinges(scores: Tensor, owner: Tensor, margin: float) -> Tensor:
    """Return the hinges of every pair against all its negatives in the batch, summed.

    The sum over pairs (i, c) of the sums over c' and i' of max(0, margin - S(i, c) + S(i, c')) and
    max(0, margin - S(i, c) + S(i', c)): Vendrov et al. 2016, eq. (5) (E = -S); Qian & Lamberti
    2018, eq. (2); Kiros et al. 2014, eq. (2), with the whole batch as contrastive terms. The
    papers' batches have one caption an image; with several, each makes a pair.

    Parameters
    ----------
    scores : (images, captions).
    owner : (captions,) int64.
    margin : at least 0.

    Returns
    -------
    Tensor
        A scalar.
    """
    positive, captions, images = _split(scores, owner)
    own = positive[:, None]
    return _hinges(own, captions, margin).sum() + _hinges(own, images, margin).sum()


def contrastive(scores: Tensor, owner: Tensor, temperature: float) -> Tensor:
    """Return how badly each pair is picked out from its negatives, in nats, summed.

    The sum over pairs and both anchors of -log(e(i, c) / (e(i, c) + the sum of e of the anchor's
    negatives)), where e = exp(S / temperature). Van den Oord et al. 2018, eq. (4), in both
    directions. Siblings of a caption are neither its negatives nor its positives.

    Parameters
    ----------
    scores : (images, captions). owner : (captions,) int64.
    temperature : above 0.

    Returns
    -------
    Tensor
        A scalar.
    """
    positive, captions, images = _split(scores / temperature, owner)
    own = positive[:, None]
    by_image, by_caption = (
        torch.logsumexp(torch.cat((own, negatives), dim=1), dim=1) - positive
        for negatives in (captions, images)
    )
    return by_image.sum() + by_caption.sum()


def sampled_contrast(
    scores: Tensor, owner: Tensor, margin: float, k: int, generator: torch.Generator
) -> Tensor:
    """Return the hinges of every pair against `k` random captions and `k` random images, summed.

    Kiros et al. 2014, eq. (2), whose contrastive terms are random. Deviation: they are drawn
    from the batch, without replacement and anew for each batch, where the paper draws them from
    the training set once an epoch. With fewer than `k` negatives all count.

    Parameters
    ----------
    k : at least 1.
    generator : gives the draws; the same state and batch give the same loss.

    Others, result: as `sum_of_hinges`.
    """
    positive, captions, images = _split(scores, owner)
    own = positive[:, None]

    def drawn(negative: Tensor) -> Tensor:
        keys = torch.rand(negative.shape, generator=generator, device=generator.device)
        keys = keys.to(negative.device).masked_fill(negative == -torch.inf, -1.0)
        return negative.gather(1, keys.topk(min(k, keys.shape[1]), dim=1).indices)

    by_image = _hinges(own, drawn(captions), margin)
    by_caption = _hinges(own, drawn(images), margin)
    return by_image.sum() + by_caption.sum()


class Negatives(NamedTuple):
    """One negative of each kind for every pair; without one, the pair's own rows stand there.

    captions : (captions,) int64, a caption of another image.
    images : (captions,) int64, another image.
    """

    captions: Tensor
    images: Tensor


def hardest_negatives(scores: Tensor, owner: Tensor) -> Negatives:
    """Return the highest-scoring negatives of every pair, the first of equals."""
    _, captions, images = _split(scores.detach(), owner)
    return Negatives(captions.argmax(1), images.argmax(1))


def hinges_at(scores: Tensor, owner: Tensor, negatives: Negatives, margin: float) -> Tensor:
    """Return the hinges of every pair against the given negatives, summed.

    Parameters
    ----------
    scores : (..., images, captions); all leading axes (Yan's pools) are summed.
    negatives : see `hardest_negatives`; they may come from other scores than these.

    Others, result: as `sum_of_hinges`.
    """
    pair = torch.arange(len(owner), device=owner.device)
    positive = scores[..., owner, pair]
    by_image = _hinges(positive, scores[..., owner, negatives.captions], margin)
    by_caption = _hinges(positive, scores[..., negatives.images, pair], margin)
    by_image = by_image * (owner[negatives.captions] != owner)
    by_caption = by_caption * (negatives.images != owner)
    return by_image.sum() + by_caption.sum()


def hardest_negative(scores: Tensor, owner: Tensor, margin: float) -> Tensor:
    """Return the hinges of every pair against its hardest negatives in the batch, summed.

    Faghri et al. 2018 (VSE++), eq. (6) (the maximum of hinges); Yan 2019, section 2.4. Of equal
    negatives the gradient goes to the first.

    Parameters, result: as `sum_of_hinges`.
    """
    return hinges_at(scores, owner, hardest_negatives(scores, owner), margin)


def pooling_loss(
    scores: Tensor,
    pool_scores: Tensor,
    owner: Tensor,
    margin: float,
    pool_margin: float,
    weight: float,
) -> Tensor:
    """Return Yan 2019, sections 2.5.1 and 3.4: (1 - weight) L_global + weight L_pool.

    L_global is `hardest_negative`; L_pool are the hinges of corresponding pools, summed over
    pools and pairs, against the pools of the global loss's hardest negatives. The paper has
    weight 0.8 and both margins 0.2. Our reading of the printed formula: its s(v_vi, p_ui+) is
    s(p_vi, p_ui+), and its second sum also runs over pools, with the same margin.

    Parameters
    ----------
    scores : (images, captions), global.
    pool_scores : (pools, images, captions), of pool p of an image and pool p of a caption.
    owner : (captions,) int64.
    margin, pool_margin : at least 0.
    weight : from 0 to 1.

    Returns
    -------
    Tensor
        A scalar.
    """
    negatives = hardest_negatives(scores, owner)
    globally = hinges_at(scores, owner, negatives, margin)
    return (1.0 - weight) * globally + weight * hinges_at(
        pool_scores, owner, negatives, pool_margin
    )


def cross_attention_loss(
    scores: Tensor,
    images: Tensor,
    captions: Tensor,
    owner: Tensor,
    margin: float,
    node_margin: float,
    weight: float,
) -> Tensor:
    """Return Yan 2019, sections 2.5.2 and 3.4: L_global + weight L_ca.

    L_global is `hardest_negative`. L_ca sums over pairs and nodes: each node of the image is
    compared with what it attends to in its caption and in the hardest negative caption of the
    global loss, and each word with what it attends to in its image and in the hardest negative
    image. The paper has weight 0.15 and both margins 0.2. Our reading: the formula prints the
    same term twice, and by the text the first of the two is the negative's.

    Parameters
    ----------
    scores : (images, captions), global.
    images, captions : (images, regions, d) and (captions, words, d) nodes; absent ones are zero
        vectors and count nothing.
    owner : (captions,) int64.
    margin, node_margin : at least 0.
    weight : at least 0.

    Returns
    -------
    Tensor
        A scalar.
    """
    negatives = hardest_negatives(scores, owner)
    own = images[owner]

    def nodewise(nodes: Tensor, match: Tensor, mismatch: Tensor, counts: Tensor) -> Tensor:
        hinge = _hinges(
            attended_similarities(nodes, match),
            attended_similarities(nodes, mismatch),
            node_margin,
        )
        return (hinge * (present(nodes) & counts[:, None])).sum()

    by_image = nodewise(
        own, captions, captions[negatives.captions], owner[negatives.captions] != owner
    )
    by_caption = nodewise(captions, own, images[negatives.images], negatives.images != owner)
    return hinges_at(scores, owner, negatives, margin) + weight * (by_image + by_caption)


def _split(scores: Tensor, owner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return every pair's own score (c,), and its scores with captions (c, c), images (c, i).

    c pairs, one a caption; scores that are no negative's are -inf, whose hinge is 0.
    """
    row = torch.arange(len(owner), device=owner.device)
    image = torch.arange(len(scores), device=owner.device)
    captions = scores[owner].masked_fill(owner[:, None] == owner[None, :], -torch.inf)
    images = scores.T.masked_fill(owner[:, None] == image[None, :], -torch.inf)
    return scores[owner, row], captions, images


def _hinges(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    return (margin + negative - positive).clamp_min(0.0)


def unit_distances(products: Tensor) -> Tensor:
    """Return Euclidean distances of unit vectors from their dot products, of the same shape.

    d(x, y) = sqrt(2 - 2 x.y + 1e-4), from 0.01 for equal points to about 2.
    """
    return (2.0 - 2.0 * products).clamp_min(0.0).add(DISTANCE_FLOOR).sqrt()


def top_violations(
    anchor: Tensor, positive: Tensor, products: Tensor, negative: Tensor, margin: float, k: int
) -> Tensor:
    """Return the hinge violations of each positive pair by its k worst negatives.

    Wang et al. 2016, eq. (5) with the sampling of section 2.2: for every positive pair the K
    largest max(0, margin + d(anchor, positive) - d(anchor, negative)). Deviation: the mean over
    pairs and K (zeros and absent negatives count) stands for the paper's sum, so that the
    learning rate does not depend on the size of the batch; so do the authors' own programs.

    Parameters
    ----------
    anchor : (pairs,) int64, the row of each pair's anchor in `products`.
    positive : (pairs,) distance of each positive pair.
    products : (anchors, candidates) dot products of unit vectors.
    negative : (anchors, candidates) bool, which candidates do not match the anchor.
    margin : at least 0.
    k : so many violations count for a pair, or all candidates if there are fewer.

    Returns
    -------
    Tensor
        A scalar; 0 where there is no pair.
    """
    if positive.numel() == 0:
        return products.sum() * 0.0
    # The largest violations are those of the nearest negatives, the same for all pairs of an
    # anchor, so only their distances are worked out. Where there are fewer than k, the distance
    # is infinite and the hinge is 0.
    masked = products.masked_fill(~negative, -torch.inf)
    nearest = masked.topk(min(k, masked.shape[1]), dim=1, sorted=False).values
    hinge = (margin + positive[:, None] - unit_distances(nearest)[anchor]).clamp_min(0.0)
    return hinge.mean()


def structure_preserving_loss(
    images: Tensor,
    sentences: Tensor,
    owner: Tensor,
    margin: float,
    k: int,
    text_to_image: float,
    structure: float,
) -> Tensor:
    """Return Wang et al. 2016, eq. (5) with lambda_2 = 0 (no image has two positive images here).

    Two sentences of one image are never negatives of each other, nor is their image.

    Parameters
    ----------
    images : (n, d) unit vectors, each image once.
    sentences : (m, d) unit vectors.
    owner : (m,) int64, the row in `images` of each sentence's image.
    margin, k : see `top_violations`.
    text_to_image : lambda_1, weight of the constraints whose anchor is a sentence (eq. 2).
    structure : lambda_3, weight of the constraints among sentences (eq. 4).

    Returns
    -------
    Tensor
        A scalar.
    """
    across = sentences @ images.T
    row = torch.arange(len(owner), device=owner.device)
    matched = unit_distances(across[row, owner])
    other_image = owner[:, None] != torch.arange(len(images), device=owner.device)[None, :]

    loss = top_violations(owner, matched, across.T, other_image.T, margin, k)
    if text_to_image:
        term = top_violations(row, matched, across, other_image, margin, k)
        loss = loss + text_to_image * term
    if structure:
        within = sentences @ sentences.T
        other = owner[:, None] != owner[None, :]
        anchor, positive = (~other).fill_diagonal_(False).nonzero(as_tuple=True)
        apart = unit_distances(within[anchor, positive])
        term = top_violations(anchor, apart, within, other, margin, k)
        loss = loss + structure * term
    return loss
