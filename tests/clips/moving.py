"""Clips made in milliseconds by PyAV, with known times and colours."""

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av", reason="PyAV is not installed: the extra clips")

_UNTURNED = struct.pack(">9i", 65536, 0, 0, 0, 65536, 0, 0, 0, 1 << 30)


def picture(number: int, frames: int, size: tuple[int, int] = (48, 32)) -> np.ndarray:
    """Return frame `number`, (height, width, 3) uint8: its grey value says which one it is."""
    pixels = np.full((size[1], size[0], 3), 20 + 200 * number // max(1, frames - 1), np.uint8)
    pixels[: size[1] // 4, : size[0] // 4] = (255, 0, 0)
    return pixels


def number_of(pixels: np.ndarray, frames: int) -> int:
    """Return which frame of `picture` these pixels are."""
    return round((float(pixels[-8:, -8:].mean()) - 20) * max(1, frames - 1) / 200)


def write_clip(
    path: Path,
    frames: int = 10,
    rate: int = 10,
    codec: str = "mpeg4",
    milliseconds: Sequence[int] | None = None,
    size: tuple[int, int] = (48, 32),
    gop: int = 12,
    options: dict[str, str] | None = None,
    aspect: Fraction | None = None,
) -> Path:
    """Write frames of `picture` at a rate, or at given milliseconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height = size
        stream.pix_fmt = "rgb8" if codec == "gif" else "yuv420p"
        stream.gop_size = gop
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if milliseconds is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        container.start_encoding()
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(number, frames, size), format="rgb24")
            if codec == "gif":
                frame = frame.reformat(format="rgb8")
            if milliseconds is not None:
                frame.pts, frame.time_base = milliseconds[number], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def shown_by(path: Path, a: float, b: float, c: float, d: float) -> Path:
    """Have an MP4 say that the pixel at x, y is to be shown at a x + c y, b x + d y."""
    data = path.read_bytes()
    values = (round(v * 65536) for v in (a, b, 0, c, d, 0, 0, 0))
    matrix = struct.pack(">9i", *values, 1 << 30)
    place = data.index(_UNTURNED, data.index(b"tkhd"))
    path.write_bytes(data[:place] + matrix + data[place + len(_UNTURNED) :])
    return path
