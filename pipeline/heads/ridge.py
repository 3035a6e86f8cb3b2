"""Multi-response ridge regression from caption features to image features, in closed form.

Qian & Lamberti 2018, section 4.1: W minimises sum_k |v_k - W s_k|^2 over the training pairs; a
caption is then looked up by the Euclidean distance of W s to the image features, which are the
image embeddings unchanged. Deviations: both sides are centred, which is the same as a constant
feature; a small ridge keeps collinear text features from blowing up.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pipeline.heads.interface import History, Progress, require_vectors, setting
from pipeline.heads.pairs import Features, Pairs

Doubles = npt.NDArray[np.float64]

# Pairs whose float64 copies are in memory together.
_CHUNK = 4096


@dataclass(frozen=True)
class RidgeSettings:
    """ridge : weight of |W|^2, relative to the mean variance of the caption features."""

    ridge: float = setting(1e-4)


class RidgeHead:
    """Regression from caption features (captions, d) to image features (images, e)."""

    similarity = "euclidean"

    def __init__(
        self, settings: RidgeSettings, image_shape: tuple[int, ...], caption_shape: tuple[int, ...]
    ) -> None:
        """Take the shapes of one row of each side.

        Raises
        ------
        HeadError
            A side has no vectors.
        """
        self.settings = settings
        self._image_dim = require_vectors("ridge", "image", image_shape)
        self._caption_dim = require_vectors("ridge", "caption", caption_shape)
        self._weight: Doubles = np.zeros((self._caption_dim, self._image_dim))
        self._caption_mean: Doubles = np.zeros(self._caption_dim)
        self._image_mean: Doubles = np.zeros(self._image_dim)

    def fit(self, train: Pairs, validation: Pairs, seed: int, progress: Progress) -> History:
        """Solve the normal equations, accumulated in float64; nothing is random or chosen."""
        progress(0, 1, 0)
        self._caption_mean = train.captions.mean(axis=0, dtype=np.float64)
        self._image_mean = train.images[train.owner].mean(axis=0, dtype=np.float64)
        gram = np.zeros((self._caption_dim, self._caption_dim))
        cross = np.zeros((self._caption_dim, self._image_dim))
        for start in range(0, len(train.owner), _CHUNK):
            rows = slice(start, start + _CHUNK)
            captions = train.captions[rows] - self._caption_mean
            images = train.images[train.owner[rows]] - self._image_mean
            gram += captions.T @ captions
            cross += captions.T @ images
        penalty = self.settings.ridge * np.trace(gram) / self._caption_dim
        gram[np.diag_indices_from(gram)] += penalty
        # Least squares, so that features that never vary get no weight instead of an error.
        self._weight = np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0], np.float64)
        progress(1, 1, 0)
        residual = _mean_square(train, self.embed_captions(train.captions))
        return [{"epoch": 1, "mean_squared_error": residual}]

    def embed_images(self, features: Features) -> Features:
        """Return the image features themselves."""
        return np.asarray(features, np.float32)

    def embed_captions(self, features: Features) -> Features:
        """Return the predicted image features."""
        predicted = (features - self._caption_mean) @ self._weight + self._image_mean
        return np.asarray(predicted, np.float32)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the regression matrix (d, e) and the two means, float64."""
        return {
            "weight": torch.from_numpy(self._weight),
            "caption_mean": torch.from_numpy(self._caption_mean),
            "image_mean": torch.from_numpy(self._image_mean),
        }

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._weight = tensors["weight"].numpy()
        self._caption_mean = tensors["caption_mean"].numpy()
        self._image_mean = tensors["image_mean"].numpy()


def _mean_square(pairs: Pairs, predicted: Features) -> float:
    total = 0.0
    for start in range(0, len(pairs.owner), _CHUNK):
        rows = slice(start, start + _CHUNK)
        difference = predicted[rows].astype(np.float64) - pairs.images[pairs.owner[rows]]
        total += float(np.square(difference).sum())
    return total / predicted.size
