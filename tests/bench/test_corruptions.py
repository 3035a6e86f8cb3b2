"""Corruptions: the published constants, by other formulas; a table whose first rows are intact."""

import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image

from bench import corruptions
from bench.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.experiments.layout import Layout
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings

PIXELS = np.random.default_rng(0).integers(256, size=(12, 12, 3), dtype=np.uint8)
PIXELS = np.asarray(Image.fromarray(PIXELS).resize((50, 60), Image.Resampling.BICUBIC))


def _corrupt(name: str, severity: int, seed: int = 0) -> np.ndarray:
    frost = [np.full((40, 30, 3), 200, np.uint8)]
    return corrupt(PIXELS, name, severity, np.random.default_rng(seed), frost)


@pytest.mark.parametrize(
    ("severity", "deviation", "sigma", "kept", "added", "contrast"),
    [(1, 0.08, 1, 1, 0.4, 0.4), (3, 0.18, 3, 0.7, 0.7, 0.2), (5, 0.38, 6, 0.6, 0.75, 0.05)],
)
def test_each_corruption_is_its_formula(
    severity: int, deviation: float, sigma: int, kept: float, added: float, contrast: float
) -> None:
    exact = PIXELS.astype(np.float64)
    noise = np.random.default_rng(0).standard_normal(PIXELS.shape)
    expected = {
        "noise": exact + 255 * deviation * noise,
        "blur": cv2.GaussianBlur(
            exact, (8 * sigma + 1,) * 2, sigma, borderType=cv2.BORDER_REPLICATE
        ),
        "frost": kept * exact + added * 200,
        "contrast": contrast * exact + (1 - contrast) * exact.mean(axis=(0, 1)),
    }
    for name, values in expected.items():
        difference = np.floor(np.clip(values, 0, 255)) - _corrupt(name, severity)
        # Rounding differs where a value is a whole number but for its last bits.
        assert np.abs(difference).max() <= 1, name
        assert np.count_nonzero(difference) < 0.01 * PIXELS.size, name


def test_severer_is_farther_from_the_image_and_repeats() -> None:
    for name in CORRUPTIONS:
        corrupted = [_corrupt(name, severity) for severity in SEVERITIES]
        far = [np.square(one.astype(float) - PIXELS).mean() for one in corrupted]
        if name != "frost":  # whose share of the image falls as its own grows
            assert far == sorted(far), name
        assert far[0] > 0
        for severity, one in zip(SEVERITIES, corrupted, strict=True):
            assert (one.dtype, one.shape) == (np.uint8, PIXELS.shape)
            np.testing.assert_array_equal(one, _corrupt(name, severity))
    assert (_corrupt("noise", 1, seed=1) != _corrupt("noise", 1)).any()


class _Thumbnails:
    """Features of images: four by four pixels."""

    recipe_hash = "0123"

    def __init__(self, recipe: str) -> None:
        assert recipe == "thumbnails"

    def __call__(self, images: Iterable[np.ndarray]) -> np.ndarray:
        small = (np.asarray(Image.fromarray(image).resize((4, 4))) for image in images)
        return np.stack([one.reshape(-1) / np.float32(255) - np.float32(0.5) for one in small])


def test_the_table_begins_with_intact_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    images = {f"{n}.png": rng.integers(256, size=(8, 8, 3), dtype=np.uint8) for n in range(6)}
    for name, pixels in images.items():
        Image.fromarray(pixels).save(tmp_path / name)
    entries = [ImageEntry(name, name, "test", ("a caption",)) for name in images]
    layout = Layout(tmp_path / "data/mine", tmp_path / "data")
    Manifest("mine", tmp_path, entries, "", "", {}).write(layout.dataset)
    points = _Thumbnails("thumbnails")(images.values())
    found = Embeddings(
        [*images], points, [f"{name}#0" for name in images], [*images], points, "cosine", {}
    )
    write_embeddings(layout.embeddings("same"), found)
    spec = SimpleNamespace(name="thumbnails", recipe_hash="0123")
    head = SimpleNamespace(inputs=SimpleNamespace(images=spec), embed_images=lambda rows: rows)
    monkeypatch.setattr(corruptions, "load_head", lambda folder: head)
    monkeypatch.setattr(corruptions, "FeatureExtractor", _Thumbnails)
    monkeypatch.chdir(tmp_path)
    words = ["bench.corruptions", "same", "--dataset", "data/mine", "--limit", "5"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", "table.csv"])
    corruptions.main()
    with Path("table.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found_conditions = [(row["corruption"], int(row["severity"])) for row in rows]
    assert found_conditions == corruptions.conditions(frost=False)
    assert len(rows) == 1 + 5 * 4
    assert float(rows[0]["rsum"]) == 600
    assert float(rows[10]["rsum"]) < 600, "blur of severity 5"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("5 images of mine; ")
    shares = [float(line.split()[2]) for line in lines[2:]]
    assert shares == pytest.approx([float(row["rsum"]) / 6 for row in rows], abs=0.06)
