"""Exact resizing against Pillow, and what decides that Pillow itself resizes."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from bench.decoding import compared
from pipeline.images.decoding.jpeg import _simplejpeg
from pipeline.images.decoding.resampling import FILTERS, columns_first, exact_resize
from pipeline.images.recipes import PILLOW_RGB, Crop, Resize
from pipeline.images.transforms import read_windows
from pipeline.store.progress import Stopwatch
from tests.images.odd_files import photo

pytest.importorskip("numba", reason="the extra `fast` is not installed")


def test_every_window_of_every_size_is_pillows() -> None:
    rng, resize = np.random.default_rng(0), exact_resize()
    assert resize is not None
    for number in range(150):
        width, height, new_width, new_height = rng.integers(1, 300, 4).tolist()
        if number % 10 == 0:
            width, height = (1, height) if number % 20 else (width, 1)
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        pixels = pixels // 255 * 255 if number % 3 else pixels  # overshoot of the bicubic filter
        left, top = (int(rng.integers(size)) for size in (new_width, new_height))
        right, bottom = int(rng.integers(left, new_width)), int(rng.integers(top, new_height))
        window = left, top, right + 1, bottom + 1
        for name in FILTERS:
            image = Image.fromarray(pixels).resize((new_width, new_height), FILTERS[name])
            np.testing.assert_array_equal(
                resize(pixels, (new_width, new_height), window, name),
                np.asarray(image)[top : bottom + 1, left : right + 1],
                err_msg=f"{width} x {height} to {new_width} x {new_height}, {window}, {name}",
            )


def test_a_pillow_with_other_results_resizes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    by_pillow = Image.Image.resize

    def columns_before_rows(image: Image.Image, size: tuple[int, int], kind: int) -> Image.Image:
        return by_pillow(by_pillow(image, (size[0], image.height), kind), size, kind)

    monkeypatch.setattr(Image.Image, "resize", columns_before_rows)
    exact_resize.cache_clear()
    try:
        older = exact_resize()
        assert older is not None
        assert older.keywords == {"rows_first": columns_first}  # type: ignore[attr-defined]
        monkeypatch.setattr(
            Image.Image, "resize", lambda image, size, kind: by_pillow(image, size, 0)
        )
        exact_resize.cache_clear()
        assert exact_resize() is None
    finally:
        exact_resize.cache_clear()


def test_files_are_read_as_by_pillow_alone() -> None:
    files = []
    for seed in range(2):
        buffer = io.BytesIO()
        photo(seed, 97 + seed, 61).save(buffer, "JPEG")
        files.append(buffer.getvalue())
    assert compared(files, 300) == 0


def test_without_the_extra_windows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    photo(0, 97, 61).save(buffer, "JPEG")
    crop = Resize("shorter-side", 40), Crop("centre", 33)
    read = [read_windows(buffer.getvalue(), PILLOW_RGB, *crop, Stopwatch())]
    for module in ("numba", "simplejpeg"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "pipeline.images.decoding.passes")
    exact_resize.cache_clear()
    _simplejpeg.cache_clear()
    try:
        assert exact_resize() is _simplejpeg() is None
        read.append(read_windows(buffer.getvalue(), PILLOW_RGB, *crop, Stopwatch()))
    finally:
        exact_resize.cache_clear()
        _simplejpeg.cache_clear()
    ours, pillows = (sample.windows for sample in read)
    assert ours is not None
    assert pillows is not None
    np.testing.assert_array_equal(ours, pillows)
