"""Losses that align the nodes of both sides, beside the ranking of whole images and captions.

Yan 2019, section 2.5: cells and words are compared, pooled or through cross-attention, with those
of the negatives that `pipeline.heads.losses.ranking` finds hardest.
"""

from torch import Tensor

from pipeline.heads.losses.ranking import hardest_negatives, hinges, hinges_at
from pipeline.retrieval.torch_scores import attended_similarities, present


def pooling_loss(
    scores: Tensor,
    pool_scores: Tensor,
    image_of_caption: Tensor,
    margin: float,
    pool_margin: float,
    weight: float,
) -> Tensor:
    """Return Yan 2019, sections 2.5.1 and 3.4: (1 - weight) L_global + weight L_pool.

    L_global is `max_of_hinges`; L_pool are the hinges of corresponding pools, summed over
    pools and pairs, against the pools of the global loss's hardest negatives. The paper has
    weight 0.8 and both margins 0.2. Our reading of the printed formula: its s(v_vi, p_ui+) is
    s(p_vi, p_ui+), and its second sum also runs over pools, with the same margin.

    Parameters
    ----------
    scores : (images, captions), global.
    pool_scores : (pools, images, captions), of pool p of an image and pool p of a caption.
    image_of_caption : (captions,) int64.
    margin, pool_margin : at least 0.
    weight : from 0 to 1.

    Returns
    -------
    Tensor
        A scalar.
    """
    negatives = hardest_negatives(scores, image_of_caption)
    globally = hinges_at(scores, image_of_caption, negatives, margin)
    return (1.0 - weight) * globally + weight * hinges_at(
        pool_scores, image_of_caption, negatives, pool_margin
    )


def cross_attention_loss(
    scores: Tensor,
    images: Tensor,
    captions: Tensor,
    image_of_caption: Tensor,
    margin: float,
    node_margin: float,
    weight: float,
) -> Tensor:
    """Return Yan 2019, sections 2.5.2 and 3.4: L_global + weight L_ca.

    L_global is `max_of_hinges`. L_ca sums over pairs and nodes: each node of the image is
    compared with what it attends to in its caption and in the hardest negative caption of the
    global loss, and each word with what it attends to in its image and in the hardest negative
    image. The paper has weight 0.15 and both margins 0.2. Our reading: the formula prints the
    same term twice, and by the text the first of the two is the negative's.

    Parameters
    ----------
    scores : (images, captions), global.
    images, captions : (images, regions, d) and (captions, words, d) nodes; absent ones are zero
        vectors and count nothing.
    image_of_caption : (captions,) int64.
    margin, node_margin : at least 0.
    weight : at least 0.

    Returns
    -------
    Tensor
        A scalar.
    """
    negatives = hardest_negatives(scores, image_of_caption)
    own = images[image_of_caption]

    def nodewise(nodes: Tensor, match: Tensor, mismatch: Tensor, counts: Tensor) -> Tensor:
        hinge = hinges(
            attended_similarities(nodes, match),
            attended_similarities(nodes, mismatch),
            node_margin,
        )
        return (hinge * (present(nodes) & counts[:, None])).sum()

    by_image = nodewise(
        own,
        captions,
        captions[negatives.captions],
        image_of_caption[negatives.captions] != image_of_caption,
    )
    by_caption = nodewise(
        captions, own, images[negatives.images], negatives.images != image_of_caption
    )
    return hinges_at(scores, image_of_caption, negatives, margin) + weight * (by_image + by_caption)
