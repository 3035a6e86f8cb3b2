"""Losses that align nodes (cells and words), in addition to the ranking of images and captions.

Yan 2019, section 2.5: cells and words are compared, pooled or by cross attention, with those of
the hardest negatives from `pipeline.heads.losses.ranking`.
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
    """Return (1 - weight) L_global + weight L_pool, Yan 2019, sections 2.5.1 and 3.4.

    L_global is `max_of_hinges`. L_pool sums the hinges of corresponding pools over pools and pairs,
    with the hardest negatives of the global scores. The paper uses weight 0.8 and both margins
    0.2. Our reading of the printed formula: its s(v_vi, p_ui+) is s(p_vi, p_ui+), and its second
    sum also runs over pools, with the same margin. With weight 0, equivalent to `max_of_hinges`.

    Parameters
    ----------
    scores : (images, captions) global scores.
    pool_scores : (pools, images, captions) scores between pool p of an image and of a caption.
    image_of_caption : (captions,) int64.
    margin, pool_margin : float. Margins of both terms, at least 0.
    weight : float. Weight of L_pool, from 0 to 1.

    Returns
    -------
    Tensor
        Scalar.
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
    """Return L_global + weight L_ca, Yan 2019, sections 2.5.2 and 3.4.

    L_global is `max_of_hinges`. L_ca sums hinges over pairs and nodes: each image node is compared
    with its attended words in the own caption and in the hardest negative caption of the global
    scores, and each word likewise with cells. The paper uses weight 0.15 and both margins 0.2. Our
    reading: the formula prints the same term twice; by the text, the first is the negative's. With
    weight 0, equivalent to `max_of_hinges`.

    Parameters
    ----------
    scores : (images, captions) global scores.
    images, captions : (images, regions, d) and (captions, words, d) nodes; absent nodes are zero
        vectors and are masked.
    image_of_caption : (captions,) int64.
    margin, node_margin : float. Margins of both terms, at least 0.
    weight : float. Weight of L_ca, at least 0.

    Returns
    -------
    Tensor
        Scalar.
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
