"""Exact resizing against Pillow, and what decides that Pillow itself resizes."""

import io
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bench.decoding import compared
from pipeline.images.decoding.jpeg import _simplejpeg
from pipeline.images.decoding.resampling import FILTERS, _is_pillows, columns_first, exact_resize
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


@pytest.mark.parametrize(
    "rule",
    [
        lambda rows, columns: rows > 2 * columns,
        lambda rows, columns: rows > 0 and rows >= 2 * columns,
        lambda rows, columns: rows > 0 and rows > 2 * columns + 1,
        lambda rows, columns: rows > 0 and columns > 0 and rows > 2 * columns,
    ],
)
def test_another_rule_of_the_first_pass_is_noticed(rule: Callable[[int, int], bool]) -> None:
    resize: Any = exact_resize()
    assert _is_pillows(resize)
    assert not _is_pillows(partial(resize.func, rows_first=rule))


def test_compiled_code_that_cannot_be_kept_is_compiled_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pipeline.images.decoding import passes

    def njit(signature: object, nogil: bool, cache: bool = False) -> Any:
        if cache:
            raise EOFError("Ran out of input")  # an empty file in numba's cache
        return lambda function: ("compiled", function)

    monkeypatch.setattr(passes.numba, "njit", njit)
    assert passes._compiled(len) == ("compiled", len)


def test_files_are_read_as_by_pillow_alone() -> None:
    files = []
    for seed in range(2):
        buffer = io.BytesIO()
        photo(seed, 97 + seed, 61).save(buffer, "JPEG")
        files.append(buffer.getvalue())
    assert compared(files, 300) == 0


class Broken:
    """A finder of modules which fail to import."""

    def __init__(self, error: type[Exception], *names: str) -> None:
        self.error, self.names = error, names

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name in self.names:
            raise self.error(name)


# A llvmlite without its library raises OSError, a simplejpeg for another numpy ValueError.
@pytest.mark.parametrize("error", [ModuleNotFoundError, OSError, ValueError])
def test_without_the_extra_windows_are_the_same(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    buffer = io.BytesIO()
    photo(0, 97, 61).save(buffer, "JPEG")
    crop = Resize("shorter-side", 40), Crop("centre", 33)
    read = [read_windows(buffer.getvalue(), PILLOW_RGB, *crop, Stopwatch())]
    names = "numba", "simplejpeg", "pipeline.images.decoding.passes"
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(error, *names[:2]), *sys.meta_path])
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
