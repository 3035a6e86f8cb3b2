"""Decoding: each kind of file by the stated rule, or its status with a reason."""

import errno
import io
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.images.decoding import decode as decoding
from pipeline.images.decoding.decode import (
    MAX_PIXELS,
    FileReadError,
    UnusableImage,
    decode,
    read_image,
    register_heif,
    to_rgb,
)
from pipeline.images.recipes import RECIPES
from pipeline.images.transforms import read_sample
from pipeline.store.shards.format import MISSING, OK, REFUSED, UNREADABLE
from tests.images.odd_files import chunk, photo, png, write_all

RECIPE = RECIPES["efficientnet-lite0-pool"]


# Nearly lossless: these formats store luminance and chrominance, so values are rounded twice.
LOSSY: dict[str, dict[str, Any]] = {
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    "HEIF": {"quality": -1, "chroma": 444},
}
of_lossy = pytest.mark.parametrize("kind", LOSSY)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    if kind == "HEIF":
        pytest.importorskip("pillow_heif", reason="the extra `heif` is not installed")
        register_heif()
    buffer = io.BytesIO()
    exact = {"lossless": True} if kind == "WEBP" else LOSSY.get(kind, {})
    image.save(buffer, kind, **exact | options)
    return buffer.getvalue()


def row_png(depth: int, colour: int, row: bytes, chunks: bytes = b"") -> bytes:
    width = len(row) * 8 // depth // {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    return png((width, 1), depth, colour, b"\x00" + row, chunks)


def pixels(data: bytes) -> list[list[list[int]]]:
    values: list[list[list[int]]] = np.asarray(decode(data)).tolist()
    return values


def test_every_awkward_file_gets_its_status_a_reason_and_its_crc(tmp_path: Path) -> None:
    for name, status in write_all(tmp_path).items():
        path = tmp_path / name
        decoded = read_image(path)
        assert decoded.status == status, name
        assert (decoded.image is not None) == (status == OK), name
        assert bool(decoded.reason) == (status != OK), name
        assert str(tmp_path) not in decoded.reason, "a machine's path must not enter a shard"
        assert decoded.source_crc32 == (zlib.crc32(path.read_bytes()) if path.is_file() else 0)
        sample = read_sample(path, RECIPE, RECIPE.crop)
        assert (sample.status, sample.error) == (decoded.status, decoded.reason)
        assert (sample.windows is not None) == (status == OK), name


def test_modes_become_rgb_by_the_stated_rule(tmp_path: Path) -> None:
    write_all(tmp_path)
    good = np.asarray(photo(0)).astype(int)
    grey = np.asarray(photo(0).convert("L"))

    def pixels_of(name: str) -> np.ndarray:
        return np.asarray(read_image(tmp_path / name).image).astype(int)

    for name in ("last.png", "tiff.tif", "alpha.webp"):
        np.testing.assert_array_equal(pixels_of(name), good)
    np.testing.assert_array_equal(pixels_of("sixteen-bit.png"), np.dstack([grey] * 3))
    np.testing.assert_array_equal(pixels_of("damaged-exif.jpg"), pixels_of("first.jpg"))
    assert np.ptp(pixels_of("grey.jpg"), axis=2).max() == 0
    assert np.abs(pixels_of("cmyk.jpg") - good).mean() < 4
    assert pixels_of("one-pixel.png").tolist() == [[[200, 10, 30]]]


def test_alpha_and_transparent_colours_are_dropped() -> None:
    palette = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "L").convert("P")
    palette.putpalette([200, 10, 30, 1, 2, 3, 40, 50, 60])
    colours = [[[200, 10, 30], [1, 2, 3], [40, 50, 60]]]
    for transparent in (1, b"\x00\x80", b""):
        assert pixels(encoded(palette, "PNG", transparency=transparent)) == colours
    assert pixels(encoded(palette, "GIF", transparency=1)) == colours
    grey = Image.fromarray(np.array([[7, 8]], np.uint8))
    assert pixels(encoded(grey, "PNG", transparency=7)) == [[[7] * 3, [8] * 3]]
    faint = Image.new("LA", (1, 1), (90, 0))
    assert pixels(encoded(faint, "PNG")) == [[[90] * 3]]
    hidden = Image.new("RGBA", (1, 1), (9, 8, 7, 0))
    for kind in ("PNG", "TIFF"):
        assert pixels(encoded(hidden, kind)) == [[[9, 8, 7]]]


def test_sixteen_bit_grey_is_rounded_and_sixteen_bit_colour_keeps_its_high_byte() -> None:
    values = np.array([[0, 128, 129, 385, 386, 65535]], np.uint16)
    grey = [[[n] * 3 for n in (0, 0, 1, 1, 2, 255)]]
    assert np.asarray(to_rgb(Image.fromarray(values))).tolist() == grey
    for kind in ("PNG", "TIFF"):
        assert pixels(encoded(Image.fromarray(values), kind)) == grey
    assert pixels(b"P5 6 1 65535\n" + values.astype(">u2").tobytes()) == grey
    colour = bytes.fromhex("12ff 80ff 00ff")
    assert pixels(row_png(16, 2, colour)) == [[[0x12, 0x80, 0]]]
    assert pixels(row_png(16, 6, colour + b"\x00\x00")) == [[[0x12, 0x80, 0]]]
    assert pixels(row_png(16, 4, b"\x12\xff\x00\x00")) == [[[0x12] * 3]]


def test_one_bit_ycbcr_and_cmyk() -> None:
    bits = Image.fromarray(np.array([[True, False]]))
    for kind in ("PNG", "TIFF", "BMP"):
        assert pixels(encoded(bits, kind)) == [[[255] * 3, [0] * 3]]
    assert pixels(encoded(Image.new("YCbCr", (1, 1), (120, 128, 128)), "TIFF")) == [[[120] * 3]]
    ink = Image.new("CMYK", (1, 1), (0, 255, 100, 20))
    # (255 - ink) * (255 - black) / 255, no profile; Adobe's JPEG stores the inks inverted.
    assert pixels(encoded(ink, "TIFF")) == [[[235, 0, 143]]]
    assert pixels(encoded(ink, "JPEG", quality=100)) == [[[235, 0, 143]]]


@pytest.mark.parametrize(
    "values", [np.array([[0.5]], np.float32), np.array([[-1]], np.int32), np.array([[65536]], "i4")]
)
def test_values_without_an_eight_bit_meaning_are_refused(values: np.ndarray) -> None:
    with pytest.raises(UnusableImage, match="no stated 8-bit range") as raised:
        decode(encoded(Image.fromarray(values), "TIFF"))
    assert raised.value.status == REFUSED
    with pytest.raises(UnusableImage, match="mode LAB") as raised:
        decode(encoded(Image.new("LAB", (1, 1)), "TIFF"))
    assert raised.value.status == REFUSED


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_orientations_turn_upright_once_and_unknown_ones_turn_nothing(kind: str) -> None:
    stored = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    turned = [
        stored, stored[:, ::-1], stored[::-1, ::-1], stored[::-1], stored.swapaxes(0, 1),
        np.rot90(stored, -1), stored[::-1, ::-1].swapaxes(0, 1), np.rot90(stored),
    ]  # fmt: skip
    for orientation, upright in [(0, stored), *enumerate(turned, start=1), (9, stored)]:
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = encoded(Image.fromarray(stored), kind, exif=exif)
        np.testing.assert_array_equal(np.asarray(decode(data)), upright, f"{orientation}")


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "WEBP", "PNG", "AVIF", "HEIF"])
def test_only_the_first_frame_counts(kind: str) -> None:
    first, second = Image.new("RGB", (16, 8), (255, 0, 0)), Image.new("RGB", (16, 8), (0, 0, 255))
    data = encoded(first, kind, save_all=True, append_images=[second])
    assert getattr(Image.open(io.BytesIO(data)), "n_frames") == 2  # noqa: B009
    difference = np.asarray(decode(data)).astype(int) - np.asarray(first)
    assert np.abs(difference).max() <= 3 * (kind in LOSSY)


def test_damaged_metadata_turns_nothing_and_pillow_limits_compressed_metadata() -> None:
    red = bytes([200, 10, 30])
    for harmless in (
        chunk(b"eXIf", b"no metadata"),
        chunk(b"iCCP", b"name\x00\x00no profile"),
        chunk(b"zTXt", b"key\x00\x00no text"),
        chunk(b"tEXt", b"key\x00" + b"x" * 3_000_000),
    ):
        assert pixels(row_png(8, 2, red, harmless)) == [[[200, 10, 30]]]
    bomb = chunk(b"zTXt", b"key\x00\x00" + zlib.compress(bytes(20_000_000)))
    with pytest.raises(UnusableImage, match="too large") as raised:
        decode(row_png(8, 2, red, bomb))
    assert raised.value.status == UNREADABLE


@pytest.mark.parametrize("part", [0, 1])
def test_pixels_of_a_png_are_those_of_its_checksums(part: int) -> None:
    """Pillow reads such a file; the values of its pixels may be others than were stored."""
    grey = zlib.compress(b"\x00\x07")
    chunks = [chunk(b"IDAT", grey[:4]), chunk(b"IDAT", grey[4:])]
    whole = row_png(8, 0, b"\x07")
    start, end = whole.index(b"IDAT") - 4, whole.index(b"IEND") - 4
    assert pixels(whole[:start] + b"".join(chunks) + whole[end:]) == [[[7] * 3]]
    chunks[part] = chunks[part][:-1] + bytes([chunks[part][-1] ^ 1])
    with pytest.raises(UnusableImage, match="another checksum") as raised:
        decode(whole[:start] + b"".join(chunks) + whole[end:])
    assert raised.value.status == UNREADABLE


def test_limits_hold_before_reading_and_before_decoding(tmp_path: Path) -> None:
    write_all(tmp_path)
    for name in ("bomb.png", "large.png"):
        assert str(MAX_PIXELS) in read_image(tmp_path / name).reason
    sparse = tmp_path / "sparse.jpg"
    with sparse.open("wb") as file:
        file.truncate(decoding.MAX_BYTES + 1)
    refused = read_image(sparse)
    assert (refused.status, refused.source_crc32) == (REFUSED, 0)
    assert f"more than the limit of {decoding.MAX_BYTES}" in refused.reason


def test_names_that_no_file_has_are_missing_and_what_is_no_file_is_unreadable(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for name in ("none", "file/below", "loop", "dangling", "x" * 5000, "a\x00b", "\ud800"):
        assert read_image(tmp_path / name).status == MISSING, name
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        assert read_image(path).status == UNREADABLE


def test_trouble_of_the_system_is_never_put_down_to_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "good.png"
    photo(0).save(path)
    codes = ("EACCES", "EPERM", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ESTALE", "ETIMEDOUT")
    troubles = [OSError(getattr(errno, c), os.strerror(getattr(errno, c))) for c in codes]
    for place in ("pathlib.Path.stat", "pathlib.Path.read_bytes", "PIL.ImageFile.ImageFile.load"):
        for trouble in (*troubles, MemoryError()):

            def fail(*_: object, trouble: BaseException = trouble) -> None:
                raise trouble

            with monkeypatch.context() as patch:
                patch.setattr(place, fail)
                with pytest.raises(FileReadError) as caught:
                    read_image(path)
            text = str(caught.value)
            assert str(path) in text
            assert "resumes where it stopped" in text
            assert (getattr(trouble, "strerror", None) or "out of memory") in text
    assert read_image(path).status == OK


@of_lossy
@pytest.mark.parametrize(("width", "height"), [(61, 37), (1, 1), (200, 3)])
def test_lossy_pixels_are_those_that_were_stored(kind: str, width: int, height: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for mode, orientation in (("RGB", b""), ("L", b""), ("RGBA", b""), ("RGB", exif.tobytes())):
        stored = photo(0, width, height).convert(mode)
        found = decode(encoded(stored, kind, **({"exif": orientation} if orientation else {})))
        upright = stored.transpose(Image.Transpose.ROTATE_270) if orientation else stored
        assert (found.mode, found.size) == ("RGB", upright.size)
        difference = np.asarray(found).astype(int) - np.asarray(upright.convert("RGB"))
        assert np.abs(difference).max() <= 3, mode


@of_lossy
def test_too_many_pixels_are_refused_by_the_header(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(photo(0), kind)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *given: pytest.fail("decoded"))
    with pytest.raises(UnusableImage, match="60 x 40 pixels are more than the limit") as raised:
        decode(data, max_pixels=2399)
    assert raised.value.status == REFUSED


@of_lossy
def test_a_lossy_file_that_ends_early_or_is_damaged_is_unreadable(
    kind: str, tmp_path: Path
) -> None:
    data, path = encoded(photo(0), kind), tmp_path / "cut"
    for keep in (16, len(data) // 3, len(data) - 20):
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
    expected = {
        b"heic": r"pip install '.*\[heif\]'", b"mif1": r"pip install '.*\[heif\]'",
        b"mp42": "not an image of a known format",
    }  # fmt: skip
    try:
        for brand, message in expected.items():
            with pytest.raises(UnusableImage, match=message) as raised:
                decode(b"\0\0\0\x18ftyp" + brand + bytes(64))
            assert raised.value.status == UNREADABLE
    finally:
        register_heif.cache_clear()
