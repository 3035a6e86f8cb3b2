"""The sound of a file, of a clip or alone, as mono samples, or a status with a reason."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline.clips.clip_file import CONTAINERS, crc32_of_file, opened_file, require_av
from pipeline.images.decode import (
    RefusedImage,
    UnreadableImage,
    UnusableImage,
    fault_of_the_system,
)
from pipeline.shards.format import OK

if TYPE_CHECKING:
    from av.container import InputContainer

DECODING = "pyav, first track, rate by swresample, mean of the channels"
"""The rule of every sound recipe: from a file to samples."""

# Demuxers that read one file and no other: playlists could lead out of the dataset.
_FORMATS = (*CONTAINERS, "aac", "aiff", "au", "flac", "mp3", "wav")
_ONE_FILE = {"format_whitelist": ",".join(_FORMATS), "protocol_whitelist": ""}

MAX_SECONDS = 3600.0
"""A longer sound is refused; its samples at 16 kHz need 230 MB."""


@dataclass(frozen=True)
class Sound:
    """The sound of one file, or why there is none.

    Attributes
    ----------
    samples : (samples,) float32, mono, 1 being full scale; empty where the file has no sound, None
        if `status` is not 0.
    seconds : how long the picture beside it lasts; None of a file without moving picture, or one
        that does not say.
    source_crc32, status, reason : see `pipeline.images.decode.Decoded`.
    """

    samples: npt.NDArray[np.float32] | None
    seconds: float | None = None
    source_crc32: int = 0
    status: int = OK
    reason: str = ""


def read_sound(path: Path, rate: int) -> Sound:
    """Read a file once, and decode its first track of sound to mono at a rate.

    Rates are converted by FFmpeg's swresample with its defaults. Several channels become their
    mean.

    Parameters
    ----------
    path : of a clip, or of a file of sound such as WAV, MP3 or OGG.
    rate : samples a second.

    Raises
    ------
    FileReadError
        The system failed; see `pipeline.images.decode.read_image`.
    NoPyAv
        It is not installed.
    """
    require_av()
    crc32 = 0
    try:
        with opened_file(path) as file:
            crc32 = crc32_of_file(file)
            file.seek(0)
            samples, seconds = decode_sound(file, rate)
        return Sound(samples, seconds, crc32)
    except UnusableImage as fault:
        return Sound(None, None, crc32, fault.status, str(fault))
    except (OSError, MemoryError) as error:
        raise fault_of_the_system(path, error, "clip") from error


def decode_sound(
    file: BinaryIO, rate: int, most: float = MAX_SECONDS
) -> tuple[npt.NDArray[np.float32], float | None]:
    """Decode an open file.

    Returns
    -------
    samples : (samples,) float32; empty if it has no track of sound.
    seconds : of the picture, see `Sound`.

    Raises
    ------
    UnreadableImage, RefusedImage
        No file of a known format, damaged, or more than `most` seconds.
    """
    av = require_av()
    try:
        with av.open(file, options=_ONE_FILE, metadata_errors="replace") as container:
            seconds = _picture_seconds(container)
            if not container.streams.audio:
                if not container.streams.video:
                    raise UnreadableImage("neither sound nor picture in this file")
                return np.zeros(0, np.float32), seconds
            return _samples(av, container, rate, most), seconds
    except av.FFmpegError as error:
        raise UnreadableImage(
            f"damaged, or neither a clip nor sound of a known format ({error.strerror})"
        ) from error


def _samples(
    av: Any, container: "InputContainer", rate: int, most: float
) -> npt.NDArray[np.float32]:
    resampler = av.AudioResampler(format="fltp", rate=rate)
    parts: list[npt.NDArray[np.float32]] = []
    number = 0
    for frame in container.decode(audio=0):
        # Stamps of damaged files run backwards, which is nothing to the samples.
        frame.pts = None
        for part in resampler.resample(frame):
            parts.append(part.to_ndarray().mean(axis=0))
            number += len(parts[-1])
        if number > most * rate:
            raise RefusedImage(f"its sound is longer than the limit of {most:.0f} s")
    parts += [part.to_ndarray().mean(axis=0) for part in resampler.resample(None)]
    samples = np.concatenate([np.zeros(0, np.float32), *parts])
    if not np.isfinite(samples).all():
        raise UnreadableImage("its sound has values that are not finite")
    return samples


def _picture_seconds(container: "InputContainer") -> float | None:
    for stream in container.streams.video:
        # The cover of a record is a stream of one frame.
        if not stream.disposition.value & stream.disposition.attached_pic.value:
            if stream.duration is None or stream.time_base is None:
                return None
            return float(stream.duration * stream.time_base)
    return None
