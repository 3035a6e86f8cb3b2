"""The ranking loss that also keeps the sentences of an image close: Wang et al. 2016, eq. (5)."""

import torch
from torch import Tensor

# Inside the root, so that the gradient of equal points is finite; then d(x, x) = 0.01. The
# two-branch authors' own program has the same constant.
DISTANCE_FLOOR = 1e-4


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
    k : number of violations that count for a pair, or all candidates if there are fewer.

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
    image_of_caption: Tensor,
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
    image_of_caption : (m,) int64, the row in `images` of each sentence's image.
    margin, k : see `top_violations`.
    text_to_image : lambda_1, weight of the constraints whose anchor is a sentence (eq. 2).
    structure : lambda_3, weight of the constraints among sentences (eq. 4).

    Returns
    -------
    Tensor
        A scalar.
    """
    across = sentences @ images.T
    row = torch.arange(len(image_of_caption), device=image_of_caption.device)
    matched = unit_distances(across[row, image_of_caption])
    other_image = (
        image_of_caption[:, None]
        != torch.arange(len(images), device=image_of_caption.device)[None, :]
    )

    loss = top_violations(image_of_caption, matched, across.T, other_image.T, margin, k)
    if text_to_image:
        term = top_violations(row, matched, across, other_image, margin, k)
        loss = loss + text_to_image * term
    if structure:
        within = sentences @ sentences.T
        other = image_of_caption[:, None] != image_of_caption[None, :]
        anchor, positive = (~other).fill_diagonal_(False).nonzero(as_tuple=True)
        apart = unit_distances(within[anchor, positive])
        term = top_violations(anchor, apart, within, other, margin, k)
        loss = loss + structure * term
    return loss
