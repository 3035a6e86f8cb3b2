"""Multi-output ridge regression from caption features to image features, in closed form.

Deviations: both sides are centred, equivalent to a constant feature; a small ridge stabilises
collinear text features; image features may be L2-normalised (`image_scaling`), since predictions
shrink towards the mean image, so that images near it, or with a small norm, become nearest
neighbours of every caption (hubs).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.heads.base import FitOptions, HeadKind, History, choice, setting
from pipeline.heads.inputs.batches import require_two_images
from pipeline.heads.inputs.feature_rows import Doubles, Features, Rows, in_blocks
from pipeline.heads.inputs.feature_spec import HeadInputs, require_vectors
from pipeline.heads.inputs.pairs import HeldOut, Pairs
from pipeline.heads.layers.scaling import UnitRows, UnitVectors, mean_and_scale

# Pairs per block of float64 copies.
_CHUNK = 4096


@dataclass(frozen=True)
class RidgeSettings:
    """The regression's settings."""

    # Weight of |W|^2, relative to the mean variance of caption features.
    ridge: float = setting(1e-4)
    # "given": unchanged, as in the paper; "unit": L2-normalised; "centred": minus the mean of the
    # training images, then L2-normalised.
    image_scaling: str = choice("given", "unit", "centred")


class Affine(nn.Module):
    """Affine map in float64: (x - mean) weight + bias."""

    mean: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, mean: Doubles, weight: Doubles, bias: Doubles) -> None:
        super().__init__()
        for name, values in {"mean": mean, "weight": weight, "bias": bias}.items():
            self.register_buffer(name, torch.from_numpy(values))

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, e) float32 of (n, d)."""
        product: Tensor = (x.double() - self.mean) @ self.weight + self.bias
        return product.float()


class RidgeHead:
    """Linear regression from caption features to image features, compared by Euclidean distance.

    W minimises sum_k |v_k - W s_k|^2 over captions s_k and images v_k. Image features serve as
    embeddings unchanged, apart from `image_scaling`; a caption's embedding is W s.

    Source: Qian & Lamberti 2018, section 4.1. Their "Baseline + Weight" replaces the captions of an
        image by their mean; see `pipeline.heads.inputs.averaged.averaged`.
    Inputs: images (n, e) and captions (m, d), one vector per row.
    Relations: equivalent to scikit-learn's `Ridge` with an intercept, but its `alpha` is the
        setting `ridge` times the mean squared norm of the centred columns of the caption features.
    """

    similarity = "euclidean"

    def __init__(self, settings: RidgeSettings, inputs: HeadInputs) -> None:
        self.settings = settings
        image_dim = require_vectors("ridge", inputs.images)
        caption_dim = require_vectors("ridge", inputs.captions)
        self._weight: Doubles = np.zeros((caption_dim, image_dim))
        self._caption_mean: Doubles = np.zeros(caption_dim)
        self._image_mean: Doubles = np.zeros(image_dim)
        self._image_centre: Doubles = np.zeros(image_dim)

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Solve the normal equations, accumulated in float64; deterministic."""
        require_two_images(train)
        options.progress(0, 1, 0)
        caption_dim, image_dim = self._weight.shape
        pairs = len(train.image_of_caption)
        if self.settings.image_scaling == "centred":
            self._image_centre = mean_and_scale(train.images)[0]
        train = replace(train, images=self._prepared(train.images))
        caption_sum, image_sum = np.zeros(caption_dim), np.zeros(image_dim)
        for captions, images in self._chunks(train):
            caption_sum += captions.sum(axis=0, dtype=np.float64)
            image_sum += images.sum(axis=0, dtype=np.float64)
        self._caption_mean, self._image_mean = caption_sum / pairs, image_sum / pairs
        gram = np.zeros((caption_dim, caption_dim))
        cross = np.zeros((caption_dim, image_dim))
        for captions, images in self._chunks(train):
            x = captions - self._caption_mean
            gram += x.T @ x
            cross += x.T @ (images - self._image_mean)
        gram[np.diag_indices_from(gram)] += self.settings.ridge * np.trace(gram) / caption_dim
        # Least squares: constant features get zero weight instead of a singular-matrix error.
        self._weight = np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0], np.float64)
        squares = sum(
            float(np.square(self._predict(captions) - images.astype(np.float64)).sum())
            for captions, images in self._chunks(train)
        )
        options.progress(1, 1, 0)
        return [{"epoch": 1, "mean_squared_error": squares / (pairs * image_dim)}]

    def embed_images(self, rows: Rows) -> Features:
        """Return (images, e) float32: the image features, scaled as `image_scaling` states."""
        return np.concatenate(list(in_blocks(self._prepared(rows))))

    def embed_captions(self, rows: Rows) -> Features:
        """Return (captions, e) float32: the predicted image features."""
        return np.concatenate([self._predict(block) for block in in_blocks(rows, _CHUNK)])

    def towers(self) -> nn.ModuleDict:
        """Return the regression and the scaling of images, in float64."""
        predict = Affine(self._caption_mean, self._weight, self._image_mean)
        scaling: nn.Module = nn.Identity()
        if self.settings.image_scaling != "given":
            scaling = UnitVectors(torch.from_numpy(self._image_centre))
        return nn.ModuleDict({"image": scaling, "caption": predict})

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the regression matrix (d, e), the means and the image centre, float64."""
        return {
            "weight": torch.from_numpy(self._weight),
            "caption_mean": torch.from_numpy(self._caption_mean),
            "image_mean": torch.from_numpy(self._image_mean),
            "image_centre": torch.from_numpy(self._image_centre),
        }

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        self._weight = tensors["weight"].numpy()
        self._caption_mean = tensors["caption_mean"].numpy()
        self._image_mean = tensors["image_mean"].numpy()
        self._image_centre = tensors["image_centre"].numpy()

    def _predict(self, captions: Features) -> Features:
        predicted = (captions - self._caption_mean) @ self._weight + self._image_mean
        return predicted.astype(np.float32)

    def _prepared(self, images: Rows) -> Rows:
        if self.settings.image_scaling == "given":
            return images
        return UnitRows(images, lambda rows: rows - self._image_centre)

    def _chunks(self, pairs: Pairs) -> Iterator[tuple[Features, Features]]:
        """Yield blocks of caption features (n, d) with their image features (n, e), in order."""
        for start in range(0, len(pairs.image_of_caption), _CHUNK):
            image_of_caption = pairs.image_of_caption[start : start + _CHUNK]
            images, image_of_pair = np.unique(image_of_caption, return_inverse=True)
            rows = np.arange(start, start + len(image_of_caption))
            yield pairs.captions.take(rows), pairs.images.take(images)[image_of_pair]


HEAD = HeadKind(RidgeSettings, RidgeHead)
