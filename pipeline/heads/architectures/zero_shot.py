"""Features of both sides that are in one space already, as embeddings: nothing is learnt.

Radford et al. 2021 (CLIP), section 3.1: images and captions are compared by the cosine of what the
two towers of one model give.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions, HeadKind, History, retrieval_figures
from pipeline.heads.inputs.feature_rows import Features, Rows, in_blocks
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs, require_vectors
from pipeline.heads.inputs.pairs import HeldOut, Pairs


@dataclass(frozen=True)
class ZeroShotSettings:
    """No settings."""


class ZeroShotHead:
    """The features of both towers of one model, unchanged."""

    similarity = "cosine"

    def __init__(self, settings: ZeroShotSettings, inputs: HeadInputs) -> None:
        """Take the recipes of both sides.

        Raises
        ------
        HeadError
            The sides are not of one model with the same weights, or are no vectors of one length.
        """
        self.settings = settings
        dims = [require_vectors("zero-shot", side) for side in (inputs.images, inputs.captions)]
        images, captions = inputs.images, inputs.captions
        model = images.recipe.get("backbone")
        same = images.weights_sha256 == captions.weights_sha256 != ""
        if model is None or model != captions.recipe.get("model") or not same:
            raise HeadError(
                "head 'zero-shot' learns nothing, so both sides must be of one model with the same "
                f"weights; the images are {_origin(images)}, the captions {_origin(captions)}; "
                "make both from the same open-clip:MODEL and weights, or take a head that learns, "
                "such as cca"
            )
        if dims[0] != dims[1]:
            raise HeadError(
                f"head 'zero-shot': the images have {dims[0]} dimensions and the captions "
                f"{dims[1]}; take the embeddings of both, without other features beside them"
            )

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Return the figures of the validation split; the training split is not looked at."""
        options.progress(0, 1, 0)
        unchanged = nn.ModuleDict({"image": nn.Identity(), "caption": nn.Identity()})
        figures = retrieval_figures(unchanged, self.similarity, validation, torch.device("cpu"))
        options.progress(1, 1, 0)
        return [{"epoch": 1, **figures}]

    def embed_images(self, rows: Rows) -> Features:
        """Return (images, dim) float32, as they are."""
        return np.concatenate(list(in_blocks(rows)))

    def embed_captions(self, rows: Rows) -> Features:
        """Return (captions, dim) float32, as they are."""
        return np.concatenate(list(in_blocks(rows)))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return nothing: nothing was learnt."""
        return {}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave, which is nothing."""


def _origin(side: FeatureSpec) -> str:
    return f"{side.name!r} with weights {side.weights!r} (SHA-256 {side.weights_sha256[:8]})"


HEAD = HeadKind(ZeroShotSettings, ZeroShotHead)
