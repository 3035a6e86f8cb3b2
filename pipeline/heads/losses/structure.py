"""Bidirectional ranking loss with structure-preserving constraints: Wang et al. 2016, eq. (5)."""

import torch
from torch import Tensor

# Inside the root, so that the gradient at equal points is finite; d(x, x) is then 0.01. The
# authors' two-branch program has the same constant.
DISTANCE_FLOOR = 1e-4


def unit_distances(products: Tensor) -> Tensor:
    """Return Euclidean distances, 0.01 to about 2, of unit vectors from their dot products."""
    return (2.0 - 2.0 * products).clamp_min(0.0).add(DISTANCE_FLOOR).sqrt()


def top_violations(
    anchor: Tensor, positive: Tensor, products: Tensor, negative: Tensor, margin: float, k: int
) -> Tensor:
    """Return the mean hinge violation of positive pairs by their k worst negatives.

    For every pair the K largest of max(0, margin + d(anchor, positive) - d(anchor, negative)), and
    0 without pairs.

    Source: Wang et al. 2016, eq. (5) with the sampling of section 2.2, but the paper's sum is
        divided by pairs times K (zeros and absent negatives count), so that the learning rate does
        not depend on the batch size; the authors' own programs do the same.
    Relations: with `k` 1, one direction of `pipeline.heads.losses.ranking.max_of_hinges`, with
        distances in place of scores, divided by the number of pairs.

    Parameters
    ----------
    anchor : (pairs,) int64. Row of each pair's anchor in `products`.
    positive : (pairs,). Distance of each positive pair.
    products : (anchors, candidates). Dot products of unit vectors.
    negative : (anchors, candidates) bool. Which candidates do not match the anchor.
    margin : float. Margin of the hinge, at least 0.
    k : int. Number of violations per pair, at most the number of candidates.
    """
    if positive.numel() == 0:
        return products.sum() * 0.0
    # The largest violations are those of the nearest negatives, which all pairs of an anchor
    # share, so only their distances are computed. Masked candidates get an infinite distance,
    # whose hinge is 0.
    masked = products.masked_fill(~negative, -torch.inf)
    nearest = masked.topk(min(k, masked.shape[1]), dim=1, sorted=False).values
    hinge = (margin + positive[:, None] - unit_distances(nearest)[anchor]).clamp_min(0.0)
    return hinge.mean()


def neighbours(matches: Tensor) -> Tensor:
    """Return which rows share a column, (rows, rows) bool, of (rows, columns) bool.

    N(x) of Wang et al. 2016, section 2.2: from (images, sentences) the images that share a
    sentence, from the transpose the sentences of one image. A row with columns shares its own.
    """
    row, column = matches.nonzero(as_tuple=True)
    shared = torch.zeros(len(matches), len(matches), dtype=torch.int32, device=matches.device)
    return shared.index_add_(0, row, matches.T[column].int()) > 0


def structure_preserving_loss(
    images: Tensor,
    sentences: Tensor,
    matches: Tensor,
    margin: float,
    k: int,
    text_to_image: float,
    image_structure: float,
    sentence_structure: float,
    negatives: Tensor | None = None,
) -> Tensor:
    """Return the bidirectional ranking loss with structure-preserving constraints, a scalar.

    Either side may have several matches on the other, such as phrases and regions. Items that
    share a match are not negatives: two sentences of one image, two images of one sentence.

    Source: Wang, Li & Lazebnik 2016, eq. (5).
    Relations: a weighted sum of `top_violations`, one for each of eq. (1) to (4).

    Parameters
    ----------
    images, sentences : (n, d) and (m, d). Unit vectors of distinct images and sentences.
    matches : (n, m) bool. Which sentences describe which image.
    margin, k : float and int. See `top_violations`.
    text_to_image : float. lambda_1, weight of the constraints with a sentence as anchor (eq. 2).
    image_structure : float. lambda_2, weight of the constraints among images (eq. 3); the term is
        zero if each sentence describes one image.
    sentence_structure : float. lambda_3, weight of the constraints among sentences (eq. 4).
    negatives : (n, m) bool or None. The negatives of eq. 1 and 2; None: all that do not match.
    """
    across = sentences @ images.T
    sentence, image = matches.T.nonzero(as_tuple=True)
    matched = unit_distances(across[sentence, image])

    negatives = ~matches if negatives is None else negatives
    loss = top_violations(image, matched, across.T, negatives, margin, k)
    if text_to_image:
        term = top_violations(sentence, matched, across, negatives.T, margin, k)
        loss = loss + text_to_image * term
    for weight, side, of in (
        (image_structure, images, matches),
        (sentence_structure, sentences, matches.T),
    ):
        if weight:
            within, near = side @ side.T, neighbours(of)
            anchor, positive = near.clone().fill_diagonal_(False).nonzero(as_tuple=True)
            apart = unit_distances(within[anchor, positive])
            loss = loss + weight * top_violations(anchor, apart, within, ~near, margin, k)
    return loss
