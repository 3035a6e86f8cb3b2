"""Resize and crop against torchvision's own transforms."""

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import v2

from pipeline.images.geometry import centre_offset, crop_offsets, cut_crops, resize_image
from pipeline.recipes import Crop, Resize
from tests.images.odd_files import photo

SIZES = [(224, 224), (256, 256), (640, 427), (427, 640), (1000, 257), (255, 999), (1, 1), (3, 700)]


@pytest.mark.parametrize("size", SIZES)
def test_resizing_equals_torchvision_on_pil(size: tuple[int, int]) -> None:
    image = photo(1, *size)
    for rule, target in (("squash", [224, 224]), ("shorter-side", [256])):
        theirs = v2.Resize(target, v2.InterpolationMode.BILINEAR, antialias=True)(image)
        ours = resize_image(image, Resize(rule, target[0]))  # type: ignore[arg-type]
        np.testing.assert_array_equal(ours, np.asarray(theirs))


def test_centre_offsets_round_as_their_sources_do() -> None:
    assert [centre_offset(m, "floor") for m in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [centre_offset(m, "round") for m in range(6)] == [0, 0, 1, 2, 2, 2]


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
        assert {one.tobytes() for one in ten} == {one.tobytes() for one in theirs}


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
    assert {one.tobytes() for one in crops} == {one.tobytes() for one in mirrored}


def test_a_canvas_of_the_right_size_is_not_resampled() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (224, 224, 3), np.uint8))
    np.testing.assert_array_equal(resize_image(image, Resize("squash", 224)), np.asarray(image))
