"""Zero-shot head: features of both sides that share one space already; nothing is trained."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions, HeadKind, History, retrieval_figures
from pipeline.heads.inputs.feature_rows import Features, Rows, in_blocks
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs, require_vectors
from pipeline.heads.inputs.pairs import HeldOut, Pairs
from pipeline.store.builder.arrays import UNKNOWN_SHA256


@dataclass(frozen=True)
class ZeroShotSettings:
    """No settings."""


class ZeroShotHead:
    """Identity on the features of both towers of one model, compared by cosine.

    Source: Radford et al. 2021 (CLIP), section 3.1.
    Inputs: images (n, d) and captions (m, d) of one model with the same weights.
    Relations: equivalent to a linear head, such as `cca` or `ridge`, whose maps are the identity.
    """

    similarity = "cosine"

    def __init__(self, settings: ZeroShotSettings, inputs: HeadInputs) -> None:
        self.settings = settings
        dims = [require_vectors("zero-shot", side) for side in (inputs.images, inputs.captions)]
        images, captions = inputs.images, inputs.captions
        same = images.weights_sha256 == captions.weights_sha256 != ""
        if images.recipe.get("backbone") != captions.recipe.get("model") or not same:
            raise HeadError(
                "head 'zero-shot' is not trained, so both sides need one model with the same "
                f"weights; found images {_origin(images)} and captions {_origin(captions)}; "
                "extract both with the same open-clip:MODEL or transformers:MODEL and weights, or "
                "use a trained head such as cca"
            )
        self._unknown = images.weights_sha256 == UNKNOWN_SHA256
        # Only embeddings have length 1: a layer or a pool may have the same dimensions.
        if dims[0] != dims[1] or images.recipe.get("norm") != captions.recipe.get("norm"):
            raise HeadError(
                f"head 'zero-shot': image features have {dims[0]} dimensions, caption features "
                f"{dims[1]}; use both embeddings, not a layer, a pool or a concatenation"
            )

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Return the validation figures; the training split is not used."""
        options.progress(0, 1, 0)
        if self._unknown:
            options.log("neither side records its weights; both are taken for those of one model")
        figures = retrieval_figures(self.towers(), self.similarity, validation, torch.device("cpu"))
        options.progress(1, 1, 0)
        return [{"epoch": 1, **figures}]

    def embed_images(self, rows: Rows) -> Features:
        """Return (images, dim) float32, unchanged."""
        return np.concatenate(list(in_blocks(rows)))

    def embed_captions(self, rows: Rows) -> Features:
        """Return (captions, dim) float32, unchanged."""
        return np.concatenate(list(in_blocks(rows)))

    def towers(self) -> nn.ModuleDict:
        """Return identities."""
        return nn.ModuleDict({"image": nn.Identity(), "caption": nn.Identity()})

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Load tensors that `tensors` returned; there are no tensors."""


def _origin(side: FeatureSpec) -> str:
    return f"{side.name!r} with weights {side.weights!r} (SHA-256 {side.weights_sha256[:8]})"


HEAD = HeadKind(ZeroShotSettings, ZeroShotHead)
