"""A small network, and a head in closed form: what another package adds for both sides."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import pipeline
from pipeline.heads.base import FitOptions, HeadKind, History, setting
from pipeline.heads.inputs.feature_rows import Features, Rows
from pipeline.heads.inputs.feature_spec import HeadInputs, require_vectors
from pipeline.heads.inputs.pairs import HeldOut, Pairs


def build() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 12, 8, stride=8), nn.ReLU())


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"0.weight": (12, 3, 8, 8), "0.bias": (12,)}
    return {name: torch.randn(s, generator=generator) for name, s in shapes.items()}


NETWORK = pipeline.ImageNetwork(
    build,
    pipeline.Preprocessing(
        pipeline.Resize("squash", 32),
        pipeline.Crop("none", 32),
        pipeline.Normalise(255.0, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    ),
    {"output": (12, 4, 4)},
    pretrained=weights,
)


@dataclass(frozen=True)
class Settings:
    ridge: float = setting(0.1)


class LeastSquares:
    """Images as they are, and captions by the map that comes nearest to them."""

    similarity = "cosine"

    def __init__(self, settings: Settings, inputs: HeadInputs) -> None:
        self.ridge = settings.ridge
        rows = require_vectors("least-squares", inputs.captions)
        self.map = np.zeros((rows, require_vectors("least-squares", inputs.images)), np.float32)

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        x = train.captions.take(np.arange(len(train.captions))).astype(np.float64)
        y = train.images.take(train.image_of_caption).astype(np.float64)
        square = x.T @ x + self.ridge * np.eye(x.shape[1])
        self.map = np.linalg.solve(square, x.T @ y).astype(np.float32)
        images, captions = (
            self.embed_images(validation.images), self.embed_captions(validation.captions)
        )  # fmt: skip
        return [{"epoch": 1, **validation.figures(images, captions, self.similarity)}]

    def embed_images(self, rows: Rows) -> Features:
        return rows.take(np.arange(len(rows)))

    def embed_captions(self, rows: Rows) -> Features:
        return rows.take(np.arange(len(rows))) @ self.map

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"map": torch.from_numpy(self.map)}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        self.map = tensors["map"].numpy()


HEAD = HeadKind(Settings, LeastSquares)
