"""Opening of clips, with limits and a reason for every rejected file."""

import errno
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from PIL import Image

from pipeline.images.decoding.decode import (
    FORMATS,
    MAX_PIXELS,
    UnusableImage,
    fault_of_the_system,
)
from pipeline.store.extras import require
from pipeline.store.shards.format import MISSING, REFUSED

if TYPE_CHECKING:
    from av import FFmpegError, VideoStream
    from av.container import InputContainer

# Demuxers that read a single file: playlists could refer to files outside the dataset.
CONTAINERS = {
    "avi": "AVI",
    "mov": "MP4, MOV",
    "matroska": "WebM, Matroska",
    "gif": "GIF",
    "mpeg": "MPEG",
    "mpegts": "MPEG-TS",
    "flv": "FLV",
    "asf": "WMV",
    "ogg": "OGG",
}
_ONE_FILE = {"format_whitelist": ",".join(CONTAINERS), "protocol_whitelist": ""}
# They state the time of the end, which is not the length of a clip that starts late.
_STATE_THE_END = ("matroska,webm", "asf")
_BLOCK = 1 << 20
# Tolerance for a missing end, as a share of the stated length and in seconds.
MISSING_SHARE, _MISSING_SECONDS = Fraction(1, 20), Fraction(1, 4)


@dataclass(frozen=True)
class Limits:
    """Limits of a clip; a clip that exceeds one is refused."""

    seconds: float = 3600.0  # length of the clip
    pixels: int = MAX_PIXELS  # per frame
    bytes: int = 1 << 32  # size of the file
    reading_seconds: float = 1200.0  # for reading and decoding the file


LIMITS = Limits()


@dataclass(frozen=True)
class ClipFile:
    """An open clip."""

    container: "InputContainer"
    stream: "VideoStream"  # of its frames, at the beginning
    start: Fraction  # presentation time of the first frame in seconds, from the packets
    seconds: Fraction  # from it to the end of the last frame
    limits: Limits
    deadline: float  # `time.monotonic` value after which reading must stop


def require_av() -> Any:
    """Import PyAV, or raise `MissingPackage`."""
    return require("av", "clips need")


def clip_crc32(path: Path) -> int:
    """Return the CRC-32 of a clip's bytes, read in blocks; 0 if the file cannot be opened."""
    try:
        with opened_file(path, LIMITS) as file:
            return crc32_of_file(file)
    except UnusableImage:
        return 0
    except (OSError, MemoryError) as error:
        raise fault_of_the_system(path, error, "clip") from error


@contextmanager
def open_clip(path: Path, crc32: list[int], limits: Limits = LIMITS) -> Iterator[ClipFile]:
    """Open a clip for decoding, after one pass over its packets.

    `crc32` receives the CRC-32 of the file's bytes as soon as it is known. Errors of FFmpeg within
    the context become the reason of an `UnusableImage`.
    """
    av = require_av()
    # The packets are read once to the end before a frame is decoded: a file that is cut off or too
    # long is refused for a few reads, and samplings need the length.
    deadline = time.monotonic() + limits.reading_seconds
    with opened_file(path, limits) as file:
        crc32.append(crc32_of_file(file))
        try:
            with _container(av, file) as container:
                stream = _frames_of(container, file, limits)
                start, seconds = _length(container, stream, limits, deadline)
            if seconds > limits.seconds:
                raise UnusableImage(
                    f"{float(seconds):.1f} s are more than the limit of {limits.seconds:g} s",
                    REFUSED,
                )
            with _container(av, file) as container:
                stream = _frames_of(container, file, limits)
                # Many clips are decoded at once; each decoder needs only one thread.
                stream.thread_type = "NONE"
                # Else a crop at the left is rounded to what keeps rows aligned.
                stream.codec_context.flags |= av.codec.context.Flags.unaligned
                yield ClipFile(container, stream, start, seconds, limits, deadline)
        except av.FFmpegError as error:
            if isinstance(error, av.ArgumentError | av.InvalidDataError):
                raise UnusableImage(_why_not(file, error)) from error
            raise UnusableImage(f"cannot be decoded ({error.strerror})") from error
        except OSError as error:
            # A damaged file may contain offsets before its beginning.
            if error.errno != errno.EINVAL:
                raise
            raise UnusableImage(_why_not(file, error)) from error


def require_time(limits: Limits, deadline: float) -> None:
    """Raise if the time for reading a clip is exceeded."""
    if time.monotonic() > deadline:
        raise UnusableImage(f"reading it took more than {limits.reading_seconds:g} s", REFUSED)


@contextmanager
def opened_file(path: Path, limits: Limits = LIMITS) -> Iterator[BinaryIO]:
    """Open an ordinary file within the size limit, or raise an `UnusableImage`."""
    try:
        info = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UnusableImage("no such file", MISSING) from None
    if not stat.S_ISREG(info.st_mode):
        # Reading a pipe would block, a device might never end.
        raise UnusableImage("not an ordinary file")
    if info.st_size > limits.bytes:
        raise UnusableImage(
            f"{info.st_size} bytes are more than the limit of {limits.bytes}", REFUSED
        )
    with path.open("rb") as file:
        yield file


def crc32_of_file(file: BinaryIO) -> int:
    """Return the CRC-32 of an open file's bytes, read in blocks."""
    crc32 = 0
    while block := file.read(_BLOCK):
        crc32 = zlib.crc32(block, crc32)
    return crc32


def _container(av: Any, file: BinaryIO) -> "InputContainer":
    file.seek(0)
    container: InputContainer = av.open(file, options=_ONE_FILE, metadata_errors="replace")
    return container


def _frames_of(container: "InputContainer", file: BinaryIO, limits: Limits) -> "VideoStream":
    """Return the first video stream that is not cover art, nor a still where another moves."""
    # An AVIF or HEIC sequence has its still first, which lasts no time.
    for stream in sorted(container.streams.video, key=lambda stream: stream.duration is None):
        if stream.disposition.value & stream.disposition.attached_pic.value:
            continue
        if stream.codec_context is None:
            raise UnusableImage("its frames are in a format without a decoder, or damaged")
        width, height = stream.codec_context.width, stream.codec_context.height
        if width * height > limits.pixels:
            raise UnusableImage(
                f"{width} x {height} pixels are more than the limit of {limits.pixels}", REFUSED
            )
        if container.format.name == "gif":
            _require_whole_gif(file)
        return stream
    others = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
    raise UnusableImage(f"no stream of frames in it, but {others}")


def _length(
    container: "InputContainer", stream: "VideoStream", limits: Limits, deadline: float
) -> tuple[Fraction, Fraction]:
    """Return start and length of the frames; raise if the file is shorter than stated."""
    start = end = last = None
    for packet in container.demux():
        require_time(limits, deadline)
        if packet.pts is None or packet.is_discard or packet.time_base is None:
            continue
        begins = packet.pts * packet.time_base
        ends = begins + (packet.duration or 0) * packet.time_base
        last = ends if last is None else max(last, ends)
        if packet.stream_index == stream.index:
            start = begins if start is None else min(start, begins)
            end = ends if end is None else max(end, ends)
    if start is None or end is None or last is None:
        raise UnusableImage("no frames in it")
    require_whole(container, last)
    return start, end - start


def require_whole(container: "InputContainer", last: Fraction | None) -> None:
    """Raise if a file ends before its stated length; `last` is the end of its last packet in s."""
    if not container.duration:
        return
    first = Fraction(container.start_time or 0, 1_000_000)
    stated = Fraction(container.duration, 1_000_000)
    if container.format.name in _STATE_THE_END and stated > first:
        stated -= first
    actual = Fraction(0) if last is None else last - first
    if stated - actual > max(stated * MISSING_SHARE, _MISSING_SECONDS):
        raise UnusableImage(
            f"it ends after {float(actual):.2f} of {float(stated):.2f} s: the file is not whole"
        )


def _require_whole_gif(file: BinaryIO) -> None:
    """Raise if a GIF lacks its end byte; it does not state a length."""
    position = file.tell()
    file.seek(-min(16, file.seek(0, 2)), 2)
    whole = b"\x3b" in file.read()
    file.seek(position)
    if not whole:
        raise UnusableImage("the GIF ends early: the file is not whole")


def _why_not(file: BinaryIO, error: "OSError | FFmpegError") -> str:
    file.seek(0)
    try:
        with Image.open(file, formats=[name for name in FORMATS if name != "GIF"]) as picture:
            return f"a picture ({picture.format}), not a clip"
    # Pillow's parsers raise any exception over a damaged file.
    except Exception:
        formats = ", ".join(CONTAINERS.values())
        return f"damaged, or not a clip of a known format ({formats}): {error.strerror}"
