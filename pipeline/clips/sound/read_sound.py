"""The sound of a clip or sound file as mono samples, or a status with a reason."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline.clips.clip_file import (
    CONTAINERS,
    MISSING_SHARE,
    crc32_of_file,
    opened_file,
    require_av,
    require_whole,
)
from pipeline.images.decoding.decode import UnusableImage, fault_of_the_system
from pipeline.store.shards.format import OK, REFUSED

if TYPE_CHECKING:
    from av import AudioFrame
    from av.container import InputContainer

DECODING = "pyav, first track, rate by swresample, mean of the channels"
"""The decoding rule of every audio recipe."""

# Demuxers that read a single file: playlists could refer to files outside the dataset.
_FORMATS = (*CONTAINERS, "aac", "aiff", "au", "flac", "mp3", "wav")
_ONE_FILE = {"format_whitelist": ",".join(_FORMATS), "protocol_whitelist": ""}

# Formats without a stated length: FFmpeg estimates it from the first frame.
_ESTIMATED_LENGTHS = ("mp3", "aac")
# Written by recorders that cannot update the header.
_UNKNOWN_SIZES = (0x7FFFFFFF, 0xFFFFFFFF)

MAX_SECONDS = 3600.0
"""Maximum length of a sound in seconds; its samples at 16 kHz need 230 MB."""


@dataclass(frozen=True)
class Sound:
    """The sound of one file, or the reason for its absence."""

    samples: npt.NDArray[np.float32] | None
    """(samples,), mono, full scale 1; empty without sound, None if `status` is not 0."""
    seconds: float | None = None  # of the video; None without one or without a stated length
    source_crc32: int = 0
    status: int = OK
    reason: str = ""


def read_sound(path: Path, rate: int) -> Sound:
    """Read a clip or sound file once, and decode its first audio track to mono at a rate in Hz.

    FFmpeg's swresample with its defaults converts rates. Channels are averaged. Rate and channels
    may change within a file.
    """
    require_av()
    crc32 = 0
    try:
        with opened_file(path) as file:
            crc32 = crc32_of_file(file)
            file.seek(0)
            samples, seconds = decode_sound(file, rate)
        return Sound(samples, seconds, crc32)
    except UnusableImage as error:
        return Sound(None, None, crc32, error.status, str(error))
    except (OSError, MemoryError) as error:
        raise fault_of_the_system(path, error, "clip") from error


def decode_sound(
    file: BinaryIO, rate: int, most: float = MAX_SECONDS
) -> tuple[npt.NDArray[np.float32], float | None]:
    """Decode an open file of at most `most` seconds: samples, and the seconds of its video.

    (samples,) float32, empty without an audio track.
    """
    av = require_av()
    try:
        with av.open(file, options=_ONE_FILE, metadata_errors="replace") as container:
            seconds = _picture_seconds(container)
            if not container.streams.audio:
                if not container.streams.video:
                    raise UnusableImage("neither sound nor picture in this file")
                return np.zeros(0, np.float32), seconds
            if container.format.name == "wav":
                _require_whole_wav(file)
            parts = _mono(av, _frames(container, most), rate)
            samples = np.concatenate([np.zeros(0, np.float32), *parts])
    except av.FFmpegError as error:
        raise UnusableImage(
            f"damaged, or neither a clip nor sound of a known format ({error.strerror})"
        ) from error
    if not np.isfinite(samples).all():
        raise UnusableImage("its sound has values that are not finite")
    return samples, seconds


def _frames(container: "InputContainer", most: float) -> Iterator["AudioFrame"]:
    """Decode the first audio track; raise if it is too long, or shorter than stated."""
    stream = container.streams.audio[0]
    if stream.codec_context is None:
        raise UnusableImage("its sound is in a format without a decoder, or damaged")
    last: Fraction | None = None
    seconds = Fraction(0)
    for packet in container.demux():
        if packet.pts is not None and packet.time_base is not None and not packet.is_discard:
            end = (packet.pts + (packet.duration or 0)) * packet.time_base
            last = end if last is None else max(last, end)
        if packet.stream.index != stream.index:
            continue
        for frame in stream.decode(packet):
            if not frame.sample_rate:
                raise UnusableImage("its sound has no rate")
            # Checked before resampling, which multiplies the samples of a low rate.
            seconds += Fraction(frame.samples, frame.sample_rate)
            if seconds > most:
                raise UnusableImage(f"its sound is longer than the limit of {most:.0f} s", REFUSED)
            yield frame
    if container.format.name not in _ESTIMATED_LENGTHS:
        require_whole(container, last)


def _mono(av: Any, frames: Iterable["AudioFrame"], rate: int) -> Iterator[npt.NDArray[np.float32]]:
    """Resample frames, whose rate and channels may change, and average their channels."""
    resampler, made_for = av.AudioResampler(), None
    for frame in frames:
        # Time stamps of damaged files can decrease; samples do not need them.
        frame.pts = None
        if made_for != (kind := (frame.format.name, frame.layout.name, frame.sample_rate)):
            yield from map(_mixed, resampler.resample(None))
            # Packed format: PyAV reads out of bounds with eight or more planes.
            resampler, made_for = av.AudioResampler(format="flt", rate=rate), kind
        yield from map(_mixed, resampler.resample(frame))
    yield from map(_mixed, resampler.resample(None))


def _mixed(frame: "AudioFrame") -> npt.NDArray[np.float32]:
    channels = frame.to_ndarray().reshape(-1, frame.layout.nb_channels)
    mixed: npt.NDArray[np.float32] = channels.mean(axis=1)
    return mixed


def _require_whole_wav(file: BinaryIO) -> None:
    """Raise if a WAV file is shorter than its header states, which FFmpeg ignores."""
    position = file.tell()
    size = file.seek(0, 2)
    file.seek(0)
    magic, stated = struct.unpack("<4sI", file.read(8))
    file.seek(position)
    if magic == b"RIFF" and stated not in _UNKNOWN_SIZES and stated - size > stated * MISSING_SHARE:
        raise UnusableImage(f"it ends after {size} of {stated + 8} bytes: the file is not whole")


def _picture_seconds(container: "InputContainer") -> float | None:
    for stream in container.streams.video:
        # Cover art is a stream of one frame.
        if not stream.disposition.value & stream.disposition.attached_pic.value:
            if stream.duration is None or stream.time_base is None:
                return None
            return float(stream.duration * stream.time_base)
    return None
