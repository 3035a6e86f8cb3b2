"""Losses that align nodes (cells and words), in addition to ranking: Yan 2019, section 2.5."""

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
    """Return (1 - weight) L_global + weight L_pool, a scalar.

    L_global is `max_of_hinges`. L_pool sums the hinges of corresponding pools over pools and pairs,
    with the hardest negatives of the global scores.

    Source: Yan 2019, sections 2.5.1 and 3.4. Our reading of the printed formula: its s(v_vi, p_ui+)
        is s(p_vi, p_ui+), and its second sum also runs over pools, with the same margin.
    Relations: with weight 0, equivalent to `max_of_hinges`.

    Parameters
    ----------
    scores : (images, captions). Global scores.
    pool_scores : (pools, images, captions). Scores between pool p of an image and of a caption.
    image_of_caption : (captions,) int64. Image row of each caption.
    margin, pool_margin : float. Margins of both terms, at least 0; 0.2 in the paper.
    weight : float. Weight of L_pool, from 0 to 1; 0.8 in the paper.
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
    """Return L_global + weight L_ca, a scalar.

    L_global is `max_of_hinges`. L_ca sums hinges over pairs and nodes: each image node is compared
    with its attended words in the own caption and in the hardest negative caption of the global
    scores, and each word likewise with cells.

    Source: Yan 2019, sections 2.5.2 and 3.4. Our reading: the formula prints the same term twice;
        by the text, the first is the negative's.
    Relations: with weight 0, equivalent to `max_of_hinges`.

    Parameters
    ----------
    scores : (images, captions). Global scores.
    images, captions : (images, regions, d) and (captions, words, d). Nodes; absent nodes are zero
        vectors and are masked.
    image_of_caption : (captions,) int64. Image row of each caption.
    margin, node_margin : float. Margins of both terms, at least 0; 0.2 in the paper.
    weight : float. Weight of L_ca, at least 0; 0.15 in the paper.
    """
    negatives = hardest_negatives(scores, image_of_caption)
    matching = images[image_of_caption]

    def nodewise(nodes: Tensor, match: Tensor, mismatch: Tensor, counts: Tensor) -> Tensor:
        hinge = hinges(
            attended_similarities(nodes, match),
            attended_similarities(nodes, mismatch),
            node_margin,
        )
        return (hinge * (present(nodes) & counts[:, None])).sum()

    by_image = nodewise(
        matching,
        captions,
        captions[negatives.captions],
        image_of_caption[negatives.captions] != image_of_caption,
    )
    by_caption = nodewise(
        captions, matching, images[negatives.images], negatives.images != image_of_caption
    )
    return hinges_at(scores, image_of_caption, negatives, margin) + weight * (by_image + by_caption)
