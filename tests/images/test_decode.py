"""Decoding: each kind of file by the stated rule, or refused with its reason."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.images.decode import MAX_PIXELS, RefusedImage, decode_rgb, to_rgb
from pipeline.images.extract import read_sample
from pipeline.recipes import RECIPES
from pipeline.shards.format import OK
from tests.images.odd_files import photo, write_all

RECIPE = RECIPES["efficientnet-lite0-pool"]


def test_every_awkward_file_gets_its_status_and_a_reason(tmp_path: Path) -> None:
    for name, status in write_all(tmp_path).items():
        sample = read_sample(tmp_path / name, RECIPE)
        assert sample.status == status, name
        assert (sample.crops is not None) == (status == OK), name
        assert bool(sample.error) == (status != OK), name
        assert str(tmp_path) not in sample.error, "a machine's path must not enter a shard"


def test_modes_become_rgb_by_the_stated_rule(tmp_path: Path) -> None:
    write_all(tmp_path)
    good = np.asarray(photo(0)).astype(int)
    grey = np.asarray(photo(0).convert("L"))

    def pixels(name: str) -> np.ndarray:
        return np.asarray(decode_rgb(tmp_path / name)).astype(int)

    for name in ("last.png", "tiff.tif", "alpha.webp"):
        np.testing.assert_array_equal(pixels(name), good)
    np.testing.assert_array_equal(pixels("sixteen-bit.png"), np.dstack([grey] * 3))
    assert np.ptp(pixels("grey.jpg"), axis=2).max() == 0
    assert np.abs(pixels("cmyk.jpg") - good).mean() < 4
    assert pixels("one-pixel.png").tolist() == [[[200, 10, 30]]]
    upright = pixels("rotated.jpg")
    assert upright.shape == good.shape
    assert np.abs(upright - good).mean() < 2


def test_sixteen_bits_are_rounded_to_the_nearest_of_eight() -> None:
    values = np.array([[0, 128, 129, 385, 386, 65535]], np.uint16)
    assert np.asarray(to_rgb(Image.fromarray(values)))[0, :, 0].tolist() == [0, 0, 1, 1, 2, 255]


@pytest.mark.parametrize(
    "values", [np.array([[0.5]], np.float32), np.array([[-1]], np.int32), np.array([[65536]], "i4")]
)
def test_values_without_an_eight_bit_meaning_are_refused(values: np.ndarray) -> None:
    with pytest.raises(RefusedImage, match="no stated 8-bit range"):
        to_rgb(Image.fromarray(values))


def test_the_limit_is_checked_before_decoding(tmp_path: Path) -> None:
    write_all(tmp_path)
    with pytest.raises(RefusedImage, match=str(MAX_PIXELS)):
        decode_rgb(tmp_path / "bomb.png")
    with pytest.raises(RefusedImage, match=str(MAX_PIXELS)):
        decode_rgb(tmp_path / "large.png")
