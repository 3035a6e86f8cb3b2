"""Whole image files of every format, and seeded damage to them."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from tests.images.odd_files import photo

# Values at which sizes, counts and offsets go wrong, in both byte orders.
_EXTREMES = [
    struct.pack(order + code, value)
    for order in "<>"
    for code, values in {
        "B": (0, 1, 127, 128, 255),
        "H": (0, 1, 32767, 32768, 65535),
        "I": (0, 1, 30_000, 2**16, 2**30, 2**31 - 1, 2**31, 2**32 - 1),
    }.items()
    for value in values
]

Mutation = Callable[[np.random.Generator, bytearray, bytes], None]


def sound_files() -> dict[str, bytes]:
    """Return small whole files of every format and of many modes, compressions and metadata."""
    good, exif = photo(0), Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "described " * 20
    grey = np.asarray(good.convert("L")).astype(np.uint16) * 257
    profile = b"profile" * 200
    variants: dict[str, dict[str, object]] = {
        "rgb.jpg": {"exif": exif, "icc_profile": profile, "comment": "a comment"},
        "progressive.jpg": {"progressive": True, "subsampling": 0},
        "phone.mpo": {"save_all": True, "append_images": [photo(1), photo(2)], "exif": exif},
        "rgb.png": {"exif": exif, "icc_profile": profile},
        "animated.png": {"save_all": True, "append_images": [photo(1), photo(2)]},
        "animated.gif": {"save_all": True, "append_images": [photo(1), photo(2)]},
        "raw.tif": {"exif": exif, "icc_profile": profile},
        "pages.tif": {"save_all": True, "append_images": [photo(1), photo(2)]},
        "lossy.webp": {"exif": exif, "icc_profile": profile},
        "lossless.webp": {"lossless": True},
        "animated.webp": {"save_all": True, "append_images": [photo(1), photo(2)]},
        "lossy.avif": {"exif": exif, "icc_profile": profile},
        "animated.avif": {"save_all": True, "append_images": [photo(1), photo(2)]},
        "rgb.bmp": {},
        "rgb.ppm": {},
    }
    variants |= {
        f"{kind}.tif": {"compression": kind}
        for kind in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")
    }
    files = {name: _saved(good, name, **options) for name, options in variants.items()}
    files["grey.jpg"] = _saved(good.convert("L"), "grey.jpg")
    files["cmyk.jpg"] = _saved(good.convert("CMYK"), "cmyk.jpg")
    files["palette.png"] = _saved(good.quantize(16), "palette.png", transparency=b"\x00\x80")
    files["alpha.png"] = _saved(good.convert("LA"), "alpha.png")
    files["sixteen.png"] = _saved(Image.fromarray(grey), "sixteen.png")
    files["palette.gif"] = _saved(good.quantize(16), "palette.gif", transparency=3)
    files["fax.tif"] = _saved(good.convert("1"), "fax.tif", compression="group4")
    files["sixteen.tif"] = _saved(Image.fromarray(grey), "sixteen.tif")
    files["ycbcr.tif"] = _saved(good.convert("YCbCr"), "ycbcr.tif")
    files["alpha.webp"] = _saved(good.convert("RGBA"), "alpha.webp")
    files["palette.bmp"] = _saved(good.quantize(16), "palette.bmp")
    files["bits.bmp"] = _saved(good.convert("1"), "bits.bmp")
    files["sixteen.pgm"] = b"P5 60 40 65535\n" + grey.astype(">u2").tobytes()
    files["plain.ppm"] = b"P3 2 1 255\n" + b"200 10 30 0 255 7\n"
    return files


def damaged_files(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name of a sound file and its bytes after one or two mutations."""
    rng = np.random.default_rng(seed)
    files = sound_files()
    names = list(files)
    for number in range(count):
        name = names[number % len(names)]
        data = damaged(rng, files[name], files[names[rng.integers(len(names))]])
        # Without this a PNG reader's checksums would turn every header away.
        resealed = name.endswith(".png") and rng.random() < 0.7
        yield name, _resealed_png(bytearray(data)) if resealed else data


def damaged(rng: np.random.Generator, sound: bytes, other: bytes) -> bytes:
    """Return the bytes of a file after one or two mutations; `other` is spliced in."""
    data = bytearray(sound)
    for _ in range(rng.integers(1, 3)):
        _MUTATIONS[rng.integers(len(_MUTATIONS))](rng, data, other)
    return bytes(data)


def _saved(image: Image.Image, name: str, **options: object) -> bytes:
    kind = Image.registered_extensions()["." + name.split(".")[1]]
    buffer = io.BytesIO()
    image.copy().save(buffer, kind, **options)
    return buffer.getvalue()


def _span(rng: np.random.Generator, length: int, longest: int = 64) -> tuple[int, int]:
    """Return (start, stop) of a piece, half of the time among the first 200 bytes."""
    start = int(rng.integers(min(length, 200) if rng.random() < 0.5 else length))
    return start, min(length, start + int(rng.integers(1, longest)))


def _flip(rng: np.random.Generator, data: bytearray, other: bytes) -> None:
    for _ in range(rng.integers(1, 9)):
        data[_span(rng, len(data))[0]] ^= 1 << int(rng.integers(8))


def _cut(rng: np.random.Generator, data: bytearray, other: bytes) -> None:
    del data[int(rng.integers(1, len(data) + 1)) :]
    data += b"\x00"


def _splice(rng: np.random.Generator, data: bytearray, other: bytes) -> None:
    data[int(rng.integers(len(data))) :] = other[int(rng.integers(len(other))) :]


def _repeat(rng: np.random.Generator, data: bytearray, other: bytes) -> None:
    start, stop = _span(rng, len(data))
    data[start:start] = data[start:stop] * int(rng.integers(1, 20))


def _remove(rng: np.random.Generator, data: bytearray, other: bytes) -> None:
    start, stop = _span(rng, len(data))
    data[start:stop] = b"\x00" if stop - start == len(data) else b""


def _zero(rng: np.random.Generator, data: bytearray, other: bytes) -> None:
    start, stop = _span(rng, len(data))
    data[start:stop] = bytes(stop - start)


def _extreme(rng: np.random.Generator, data: bytearray, other: bytes) -> None:
    value = _EXTREMES[rng.integers(len(_EXTREMES))]
    start, _ = _span(rng, len(data))
    data[start : start + len(value)] = value


_MUTATIONS: tuple[Mutation, ...] = (_flip, _cut, _splice, _repeat, _remove, _zero, _extreme)


def _resealed_png(data: bytearray) -> bytes:
    """Return the file with the checksum of every chunk that is still whole put right."""
    position = 8
    while position + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, position)
        end = position + 8 + length
        if end + 4 > len(data):
            break
        struct.pack_into(">I", data, end, zlib.crc32(data[position + 4 : end]))
        position = end + 4
    return bytes(data)
