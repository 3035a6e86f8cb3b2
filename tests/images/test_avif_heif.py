"""AVIF and HEIC files: decoded by the rule of all others, within the same limits."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.images.decoding.decode import UnusableImage, decode, read_image, register_heif
from pipeline.store.shards.format import OK, REFUSED, UNREADABLE
from tests.images.odd_files import photo

# Nearly lossless: both formats store luminance and chrominance, so values are rounded twice.
EXACT: dict[str, dict[str, Any]] = {
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    "HEIF": {"quality": -1, "chroma": 444},
}


def encoded(kind: str, image: Image.Image, **options: Any) -> bytes:
    if kind == "HEIF":
        pytest.importorskip("pillow_heif", reason="the extra `heif` is not installed")
        register_heif()
    buffer = io.BytesIO()
    image.save(buffer, kind, **EXACT[kind], **options)
    return buffer.getvalue()


@pytest.fixture(params=["AVIF", "HEIF"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(("width", "height"), [(61, 37), (1, 1), (200, 3)])
def test_pixels_are_those_that_were_stored(kind: str, width: int, height: int) -> None:
    good = photo(0, width, height)
    found = decode(encoded(kind, good))
    assert (found.mode, found.size) == ("RGB", good.size)
    assert np.abs(np.asarray(found).astype(int) - np.asarray(good)).max() <= 3


def test_grey_alpha_and_orientation(kind: str) -> None:
    good = photo(0)
    for mode in ("L", "RGBA"):
        converted = good.convert(mode)
        found = np.asarray(decode(encoded(kind, converted))).astype(int)
        assert np.abs(found - np.asarray(converted.convert("RGB"))).max() <= 3, mode
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = decode(encoded(kind, good, exif=exif.tobytes()))
    upright = np.asarray(good.transpose(Image.Transpose.ROTATE_270)).astype(int)
    assert np.abs(np.asarray(turned) - upright).max() <= 3


def test_only_the_first_frame_counts(kind: str) -> None:
    first, second = Image.new("RGB", (16, 8), (255, 0, 0)), Image.new("RGB", (16, 8), (0, 0, 255))
    found = np.asarray(decode(encoded(kind, first, save_all=True, append_images=[second])))
    assert np.abs(found.astype(int) - np.asarray(first)).max() <= 3


def test_too_many_pixels_are_refused_by_the_header(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(kind, photo(0))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *given: pytest.fail("decoded"))
    with pytest.raises(
        UnusableImage, match="60 x 40 pixels are more than the limit of 2399"
    ) as raised:
        decode(data, max_pixels=2399)
    assert raised.value.status == REFUSED


def test_a_file_that_ends_early_or_is_damaged_is_unreadable(kind: str, tmp_path: Path) -> None:
    data = encoded(kind, photo(0))
    for keep in (16, len(data) // 3, len(data) - 20):
        path = tmp_path / "cut"
        path.write_bytes(data[:keep])
        read = read_image(path)
        assert (read.status, read.image) == (UNREADABLE, None), keep
        assert read.reason
        assert str(tmp_path) not in read.reason
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(data)
        for place in rng.integers(0, len(data), 4):
            damaged[place] = int(rng.integers(256))
        path.write_bytes(damaged)
        assert read_image(path).status in (OK, UNREADABLE)


def test_without_the_extra_a_heic_image_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    register_heif.cache_clear()
    try:
        for brand in (b"heic", b"mif1"):
            with pytest.raises(UnusableImage, match=r"pip install '.*\[heif\]'") as raised:
                decode(b"\0\0\0\x18ftyp" + brand + bytes(64))
            assert raised.value.status == UNREADABLE
        with pytest.raises(UnusableImage, match="not an image of a known format") as raised:
            decode(b"\0\0\0\x18ftypmp42" + bytes(64))
        assert raised.value.status == UNREADABLE
    finally:
        register_heif.cache_clear()
