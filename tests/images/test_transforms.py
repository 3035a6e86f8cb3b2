"""Resize and crop against torchvision's own transforms, torch's interpolation and loops."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from torchvision.transforms import v2

from pipeline.images.decoding.decode import MAX_PIXELS, UnusableImage
from pipeline.images.recipes import Crop, RecipeError, Resize
from pipeline.images.transforms import (
    bilinear,
    canvas_size,
    centre_offset,
    crop_offsets,
    cut_crops,
    resize_image,
)
from pipeline.store.shards.format import REFUSED
from tests.images.odd_files import photo

SIZES = [(224, 224), (256, 256), (640, 427), (427, 640), (1000, 257), (255, 999), (1, 1), (3, 90)]


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(width * height).integers(0, 256, (height, width, 3))
    return Image.fromarray(values.astype(np.uint8))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resizing_equals_torchvision_on_pil(size: tuple[int, int], interpolation: str) -> None:
    image = noise(*size)
    for rule, target in (("squash", [224, 224]), ("shorter-side", [256])):
        theirs = v2.Resize(target, v2.InterpolationMode(interpolation), antialias=True)(image)
        ours = resize_image(image, Resize(rule, target[0], interpolation))  # type: ignore[arg-type]
        np.testing.assert_array_equal(ours, np.asarray(theirs))


@pytest.mark.parametrize("size", [*SIZES[:-1], (3, 20)])
def test_plain_bilinear_equals_torch_in_float64(size: tuple[int, int]) -> None:
    image = noise(*size)
    resize = Resize("shorter-side", 256, antialias=False)
    width, height = canvas_size(*size, resize)
    values = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].double()
    theirs = F.interpolate(values, (height, width), mode="bilinear", align_corners=False)[0]
    exact = bilinear(np.asarray(image), width, height)
    np.testing.assert_allclose(exact, theirs.permute(1, 2, 0).numpy(), atol=1e-9)
    canvas = resize_image(image, resize)
    assert canvas.dtype == np.uint8
    assert np.abs(canvas - exact).max() <= 0.5 + 1e-9


def test_plain_bilinear_by_hand() -> None:
    pixels = np.array([[[0], [100], [50], [7]], [[40], [20], [10], [9]]], np.uint8)
    # Two of four columns: their centres lie between the first two and the last two.
    assert bilinear(pixels, 2, 2)[..., 0].tolist() == [[50, 28.5], [30, 9.5]]
    # One pixel is the mean of the four in the middle, at whatever scale: no antialias.
    assert bilinear(pixels, 1, 1)[..., 0].tolist() == [[45]]
    assert bilinear(pixels[:, :2], 4, 2)[0, :, 0].tolist() == [0, 25, 75, 100]
    assert bilinear(pixels[:1, :1], 3, 2).tolist() == [[[0]] * 3] * 2


def test_without_antialias_fine_stripes_vanish() -> None:
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, ::4] = 255
    image = Image.fromarray(stripes)
    assert resize_image(image, Resize("squash", 128)).mean() > 60
    assert resize_image(image, Resize("squash", 128, antialias=False)).max() == 0
    with pytest.raises(RecipeError, match="bicubic without antialias"):
        Resize("squash", 224, "bicubic", antialias=False)


def test_canvases_beyond_the_pixel_limit_are_refused() -> None:
    resize = Resize("shorter-side", 256)
    longest = MAX_PIXELS // 256
    assert canvas_size(1, longest // 256, resize) == (256, longest // 256 * 256)
    for size in ((1, longest // 256 + 1), (longest // 256 + 1, 1), (2, 1_000_000)):
        with pytest.raises(UnusableImage, match=f"more than the limit of {MAX_PIXELS}") as raised:
            canvas_size(*size, resize)
        assert raised.value.status == REFUSED
    for antialias in (True, False):
        with pytest.raises(UnusableImage, match="shorter side at 256") as raised:
            resize_image(
                Image.new("RGB", (3, 90_000)), Resize("shorter-side", 256, "bilinear", antialias)
            )
        assert raised.value.status == REFUSED
    assert resize_image(Image.new("RGB", (3, 90_000)), Resize("squash", 8)).shape == (8, 8, 3)


def test_the_longer_side_is_rounded_down() -> None:
    resize = Resize("shorter-side", 256)
    for width, height in ((500, 333), (333, 500), (640, 427), (257, 256), (511, 256)):
        short, long = sorted((width, height))
        expected = (256 * long) // short
        assert sorted(canvas_size(width, height, resize)) == [256, expected]


def test_centre_offsets_round_as_their_sources_do() -> None:
    assert [centre_offset(m, "floor") for m in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [centre_offset(m, "ceil") for m in range(6)] == [0, 1, 1, 2, 2, 3]
    assert [centre_offset(m, "round") for m in range(6)] == [0, 0, 1, 2, 2, 2]


@pytest.mark.parametrize("margin", range(6))
@pytest.mark.parametrize("rule", ["floor", "ceil", "round"])
def test_ten_crops_in_their_order(margin: int, rule: str) -> None:
    canvas = np.asarray(noise(224 + margin, 224 + 5 - margin))
    crops = cut_crops(canvas, Crop("ten", 224, rule))  # type: ignore[arg-type]
    right, bottom = margin, 5 - margin
    middle = {"floor": [0, 0, 1, 1, 2, 2], "ceil": [0, 1, 1, 2, 2, 3], "round": [0, 0, 1, 2, 2, 2]}
    places = [(0, 0), (0, right), (bottom, 0), (bottom, right)]
    places.append((middle[rule][bottom], middle[rule][right]))
    assert crops.shape == (10, 224, 224, 3)
    for number, (top, left) in enumerate(places):
        window = canvas[top : top + 224, left : left + 224]
        np.testing.assert_array_equal(crops[number], window)
        np.testing.assert_array_equal(crops[number + 5], window[:, ::-1])


@pytest.mark.parametrize("margin", [0, 1, 2, 3, 32, 117])
def test_crops_are_torchvisions(margin: int) -> None:
    image = photo(2, 224 + margin, 224 + (margin + 1) // 2)
    centre = cut_crops(np.asarray(image), Crop("centre", 224))
    np.testing.assert_array_equal(centre[0], np.asarray(v2.CenterCrop(224)(image)))
    ten = cut_crops(np.asarray(image), Crop("ten", 224))
    theirs = [np.asarray(crop) for crop in v2.TenCrop(224)(image)]
    for ours, five in zip(ten[:5], theirs[:5], strict=True):
        np.testing.assert_array_equal(ours, five)
    for plain, mirror in zip(ten[:5], ten[5:], strict=True):
        np.testing.assert_array_equal(mirror, plain[:, ::-1])
    if margin % 2 == 0 and (margin + 1) // 2 % 2 == 0:
        assert {crop.tobytes() for crop in ten} == {crop.tobytes() for crop in theirs}


def test_a_flip_is_the_picture_and_its_mirror() -> None:
    canvas = np.asarray(noise(5, 5))
    whole, mirror = cut_crops(canvas, Crop("flip", 5))
    np.testing.assert_array_equal(whole, canvas)
    np.testing.assert_array_equal(mirror, canvas[:, ::-1])


def test_the_corners_are_the_corners() -> None:
    assert crop_offsets(256, 300, Crop("ten", 224)) == [
        (0, 0),
        (0, 76),
        (32, 0),
        (32, 76),
        (16, 38),
    ]
    canvas = np.zeros((256, 256, 3), np.uint8)
    canvas[0, 0] = canvas[-1, 0] = 9
    seen = [bool(crop.any()) for crop in cut_crops(canvas, Crop("ten", 224))]
    assert seen == [True, False, True, False, False] * 2


def test_a_mirrored_square_has_the_same_ten_crops() -> None:
    canvas = np.asarray(photo(3, 256, 256))
    crops, mirrored = (cut_crops(c, Crop("ten", 224)) for c in (canvas, canvas[:, ::-1]))
    assert {crop.tobytes() for crop in crops} == {crop.tobytes() for crop in mirrored}


def test_a_canvas_of_the_right_size_is_not_resampled() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (224, 224, 3), np.uint8))
    np.testing.assert_array_equal(resize_image(image, Resize("squash", 224)), np.asarray(image))
