"""Image files of every awkward kind, written from a seed, with what must become of each."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.store.shards.format import MISSING, OK, REFUSED, UNREADABLE


def photo(seed: int, width: int = 60, height: int = 40) -> Image.Image:
    """Return a smooth coloured picture with a brighter top left corner."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 200, (4, 6, 3), dtype=np.uint8)
    coarse[0, 0] = 255
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def write_all(folder: Path) -> dict[str, int]:
    """Write the files and return the status that each must get, in the order of a dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    good = photo(0)
    expected: dict[str, int] = {}

    def add(name: str, status: int = OK) -> Path:
        expected[name] = status
        return folder / name

    good.save(add("first.jpg"), quality=95)
    whole = (folder / "first.jpg").read_bytes()
    add("truncated.jpg", UNREADABLE).write_bytes(whole[: len(whole) // 2])
    add("text.jpg", UNREADABLE).write_text("this is no picture\n")
    add("empty.jpg", UNREADABLE).write_bytes(b"")
    good.convert("L").save(add("grey.jpg"))
    good.convert("CMYK").save(add("cmyk.jpg"), quality=95)
    grey = np.asarray(good.convert("L")).astype(np.uint16)
    Image.fromarray(grey * 257).save(add("sixteen-bit.png"))
    exif = Image.Exif()
    exif[0x0112] = 6
    good.transpose(Image.Transpose.ROTATE_90).save(
        add("rotated.jpg"), exif=exif, quality=100, subsampling=0
    )
    good.save(add("damaged-exif.jpg"), exif=b"Exif\x00\x00" + b"no metadata " * 9, quality=95)
    good.convert("F").save(add("float.tif", REFUSED))
    add("missing.jpg", MISSING)
    Image.new("RGB", (1, 1), (200, 10, 30)).save(add("one-pixel.png"))
    good.quantize(16).save(add("palette.gif"))
    good.convert("RGBA").save(add("alpha.webp"), lossless=True)
    good.save(add("tiff.tif"))
    add("bomb.png", REFUSED).write_bytes(png((60_000, 60_000), 8, 2, bytes(100)))
    add("large.png", REFUSED).write_bytes(png((10_000, 9_000), 8, 2, bytes(100)))
    add("folder.jpg", UNREADABLE).mkdir(exist_ok=True)
    damaged = bytearray(whole)
    damaged[2:20] = b"\x00" * 18
    add("corrupt.jpg", UNREADABLE).write_bytes(damaged)
    good.save(add("last.png"))
    return expected


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size: tuple[int, int], depth: int, colour: int, data: bytes, chunks: bytes = b"") -> bytes:
    """Return a PNG of a claimed size, of a depth or with chunks that Pillow does not write."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(data))
    return b"\x89PNG\r\n\x1a\n" + header + chunks + pixels + chunk(b"IEND", b"")
