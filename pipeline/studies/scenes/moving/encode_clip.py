"""Encoding of frames and sound: MP4 with PyAV, or GIF, without sound, with Pillow."""

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.store.extras import require
from pipeline.store.files import appearing_whole
from pipeline.studies.scenes.moving.film import FPS, RATE

ClipFormat = Literal["mp4", "gif"]


def require_encoder(form: ClipFormat) -> None:
    """Raise a `DatasetError` or `MissingPackage` unless files of this format can be written."""
    if form == "gif":
        return
    other = "or use `form=gif`, whose clips have no sound"
    av = require("av", "MP4 needs", f", {other}")
    for name in ("libx264", "aac"):
        try:
            av.Codec(name, "w")
        except ValueError as error:
            raise DatasetError(
                f"this PyAV's FFmpeg has no encoder {name}; install another PyAV, {other}"
            ) from error


def write_clip(path: Path, frames: list[Image.Image], sound: npt.NDArray[np.float32]) -> None:
    """Write RGB frames of one even size and mono sound (samples,) as MP4 or GIF, atomically."""
    with appearing_whole(path) as part:
        if path.suffix == ".gif":
            first, *others = frames
            first.save(
                part, format="GIF", save_all=True, append_images=others, duration=1000 // FPS,
                loop=0,
            )  # fmt: skip
        else:
            _write_mp4(part, frames, sound)


def _write_mp4(path: Path, frames: list[Image.Image], sound: npt.NDArray[np.float32]) -> None:
    import av

    # One thread and no version or time stamp: deterministic bytes.
    once = {"threads": "1", "flags": "+bitexact"}
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact"}) as file:
        picture = file.add_stream(
            "libx264", rate=FPS, options={**once, "preset": "veryfast", "crf": "16"}
        )
        picture.width, picture.height = frames[0].size
        picture.pix_fmt = "yuv420p"
        track = file.add_stream("aac", rate=RATE, layout="mono", options=once)
        track.bit_rate = 32_000
        for frame in frames:
            file.mux(picture.encode(av.VideoFrame.from_image(frame)))
        file.mux(picture.encode(None))
        whole = av.AudioFrame.from_ndarray(sound[None], format="fltp", layout="mono")
        whole.rate = RATE
        resampler = av.AudioResampler(format="fltp", layout="mono", frame_size=track.frame_size)
        for part in [*resampler.resample(whole), *resampler.resample(None)]:
            file.mux(track.encode(part))
        file.mux(track.encode(None))
