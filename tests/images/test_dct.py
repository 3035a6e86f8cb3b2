"""The DCT of a thumbnail: against scipy's, with both engines, and unmoved by brightness."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.fft import dctn

from pipeline.images.feature_extractor import FeatureExtractor
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import RECIPES
from pipeline.images.weights import are_here, load_weights

RECIPE = RECIPES["dct-thumbnail"]


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_rows_are_scipys_coefficients_times_their_frequency(engine: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1, 32, 32, 3), np.uint8)
    network = RecipeNetwork(RECIPE, load_weights(RECIPE).state, engine=engine)
    rows = network(torch.from_numpy(pixels)).numpy()
    grey = pixels[:, 0] / 255 @ np.array([0.299, 0.587, 0.114])
    coefficients = dctn(grey, axes=(1, 2), norm="ortho")[:, :16, :16]
    expected = (coefficients * np.hypot(*np.mgrid[:16, :16])).reshape(3, 256)[:, 1:]
    np.testing.assert_allclose(rows, expected, atol=1e-3)


def test_brightness_contrast_and_size_leave_the_direction(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(60, 180, (8, 8, 3), np.uint8)
    image = Image.fromarray(noise).resize((320, 240), Image.Resampling.BICUBIC)
    extract = FeatureExtractor("dct-thumbnail")
    darker = image.point(lambda value: value * 0.5 + 20)
    one, other, small = extract([image, darker, image.resize((80, 120))])

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    assert cosine(one, other) > 0.999
    assert cosine(one, small) > 0.995
    assert abs(cosine(one, extract(Image.fromarray(noise[::-1, ::-1]).resize((320, 240))))) < 0.5


def test_its_weights_are_always_here() -> None:
    assert are_here(RECIPE)
    weights = load_weights(RECIPE)
    assert weights.name == "computed:dct"
    assert weights.sha256 == load_weights(RECIPE).sha256
