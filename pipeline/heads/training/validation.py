"""Rows through the modules of a network, and how well a validation split retrieves with them."""

import numpy as np
import torch
from torch import nn

from pipeline.heads.data.pairs import Pairs
from pipeline.heads.data.rows import Features, Rows, in_blocks
from pipeline.heads.errors import HeadError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import recall_table

# Enough for full matrix products, few enough for a long caption's activations.
_ROWS = 512

_FIGURES = (
    "image_to_text_r1",
    "text_to_image_r1",
    "image_to_text_r10",
    "text_to_image_r10",
    "rsum",
)


def require_fitted(net: nn.ModuleDict | None) -> nn.ModuleDict:
    """Return a head's modules.

    Raises
    ------
    HeadError
        There are none yet.
    """
    if net is None:
        raise HeadError("this head has not learnt anything yet; fit it or load a trained one")
    return net


@torch.inference_mode()
def embed_rows(module: nn.Module, rows: Rows, device: torch.device) -> Features:
    """Return the embeddings (n, ...) float32 of all rows, each by itself.

    Parameters
    ----------
    module : in evaluation mode, on `device`; from (n, *row_shape) float32 to (n, ...) float32.
    rows : at least one.
    """
    chunks = [
        module(torch.from_numpy(block).to(device)).cpu().numpy() for block in in_blocks(rows, _ROWS)
    ]
    return np.concatenate(chunks)


def retrieval_figures(
    net: nn.ModuleDict, similarity: str, pairs: Pairs, device: torch.device
) -> dict[str, float]:
    """Return R@1 and R@10 in both directions and rsum of a split, in percent.

    Raises
    ------
    HeadError
        An embedding is not finite.
    """
    images = embed_rows(net["image"], pairs.images, device)
    captions = embed_rows(net["caption"], pairs.captions, device)
    if not (np.isfinite(images).all() and np.isfinite(captions).all()):
        raise HeadError(
            "training diverged: an embedding of the validation split is not finite; lower the "
            "learning rate, or check the features for outliers"
        )
    table = recall_table(
        Embeddings(
            pairs.image_ids,
            images,
            pairs.caption_ids,
            pairs.caption_image_ids,
            captions,
            similarity,
            {},
        )
    )
    return {name: float(table[name]) for name in _FIGURES}
