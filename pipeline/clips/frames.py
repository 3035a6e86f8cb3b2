"""The frames of a clip at the times of several samplings, decoded once and in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pipeline.clips.clip_file import ClipFile, require_time
from pipeline.clips.sampling import Sampling
from pipeline.images.decoding.decode import UnusableImage
from pipeline.store.shards.format import REFUSED

if TYPE_CHECKING:
    from av import VideoFrame

DECODING = "pyav, times of presentation, rotation applied, swscale to rgb24"
"""The decoding rule of every clip recipe."""

# By the display matrix (a, b, c, d): the pixel at x, y is shown at a x + c y, b x + d y.
_TURNS = {
    (1, 0, 0, 1): None,
    (0, -1, 1, 0): Image.Transpose.ROTATE_90,
    (-1, 0, 0, -1): Image.Transpose.ROTATE_180,
    (0, 1, -1, 0): Image.Transpose.ROTATE_270,
    (-1, 0, 0, 1): Image.Transpose.FLIP_LEFT_RIGHT,
    (1, 0, 0, -1): Image.Transpose.FLIP_TOP_BOTTOM,
    (0, 1, 1, 0): Image.Transpose.TRANSPOSE,
    (0, -1, -1, 0): Image.Transpose.TRANSVERSE,
}
_TOLERANCE = 0.01  # of a quarter turn, and of square pixels


@dataclass(frozen=True)
class SampledFrame:
    """A frame that at least one sampling selects."""

    image: Image.Image  # upright, mode RGB
    shown_at: Fraction  # presentation time in seconds, relative to the first frame
    times: tuple[tuple[Fraction, ...], ...]
    """For each sampling, the times at which it selects this frame: several for a frame that is
    displayed for long, none if it is not selected."""


def sampled_frames(clip: ClipFile, samplings: Sequence[Sampling]) -> Iterator[SampledFrame]:
    """Decode a clip once and yield the frames that at least one sampling selects, in order.

    A frame is displayed from its presentation time to that of the next frame, and the last one
    until the end of the clip; times before the first decoded frame select that frame. Errors of
    FFmpeg pass through; `open_clip` converts them to a reason.
    """
    schedules = [sampling.times(clip.seconds) for sampling in samplings]
    counts = [0] * len(samplings)
    previous: tuple[VideoFrame, Fraction] | None = None

    def pick(frame: "VideoFrame", since: Fraction, until: Fraction | None) -> SampledFrame | None:
        times: list[tuple[Fraction, ...]] = []
        for k, schedule in enumerate(schedules):
            if schedule is None:
                times.append((since,))
                continue
            first = counts[k]
            while counts[k] < len(schedule) and (until is None or schedule[counts[k]] < until):
                counts[k] += 1
            times.append(tuple(schedule[first : counts[k]]))
        return SampledFrame(_shown(frame, clip), since, tuple(times)) if any(times) else None

    # How long a frame is displayed is known only at the next one: at most three are in memory.
    for frame, shown_at in _frames_in_order(clip):
        if previous is not None and (selected := pick(*previous, shown_at)) is not None:
            yield selected
        previous = frame, shown_at
    if previous is None:
        raise UnusableImage("none of its frames can be decoded")
    if (selected := pick(*previous, None)) is not None:
        yield selected


def _frames_in_order(clip: ClipFile) -> Iterator[tuple["VideoFrame", Fraction]]:
    """Yield each frame with its presentation time, relative to the first one."""
    # Frames are decoded in display order. Some AVI files swap the time stamps of two frames, which
    # is corrected, as in FFmpeg.
    previous: tuple[VideoFrame, Fraction] | None = None
    for frame in clip.container.decode(clip.stream):
        require_time(clip.limits, clip.deadline)
        if frame.width * frame.height > clip.limits.pixels:
            raise UnusableImage(
                f"a frame of {frame.width} x {frame.height} pixels, more than the limit of "
                f"{clip.limits.pixels}",
                REFUSED,
            )
        shown_at = _time_of(frame) - clip.start
        if previous is not None:
            earlier, later = sorted((previous[1], shown_at))
            yield previous[0], earlier
            shown_at = later
        previous = frame, shown_at
    if previous is not None:
        yield previous


def _time_of(frame: "VideoFrame") -> Fraction:
    stamp = frame.dts if frame.pts is None else frame.pts
    if stamp is None or frame.time_base is None:
        raise UnusableImage("a frame without a time of presentation")
    return stamp * frame.time_base


def _shown(frame: "VideoFrame", clip: ClipFile) -> Image.Image:
    """Return a frame as its container has it shown: pixel aspect, turned, mirrored."""
    image: Any = frame.to_image()
    aspect = float(clip.stream.sample_aspect_ratio or 1)
    if abs(aspect - 1) > _TOLERANCE:
        width = round(frame.width * aspect)
        if not 0 < width * frame.height <= clip.limits.pixels:
            raise UnusableImage(f"its pixels have the aspect {aspect:g}", REFUSED)
        image = image.resize((width, frame.height), Image.Resampling.BICUBIC)
    turn = _turn(frame)
    shown: Image.Image = image if turn is None else image.transpose(turn)
    return shown


def _turn(frame: "VideoFrame") -> Image.Transpose | None:
    try:
        matrix: Any = frame.side_data.get("DISPLAYMATRIX")
    except ValueError as error:  # PyAV names none of a frame's data if it does not know one of them
        if frame.rotation:
            reason = f"it is shown turned, and PyAV cannot read how: {error}"
            raise UnusableImage(reason, REFUSED) from error
        return None
    if matrix is None:
        return None
    a, b, _, c, d, *_ = np.frombuffer(bytes(matrix), np.int32).astype(float)
    x, y = np.hypot(a, c) or 1.0, np.hypot(b, d) or 1.0
    exact = np.array([a / x, b / y, c / x, d / y])
    nearest = tuple(np.round(exact).astype(int).tolist())
    if not exact.any():  # as some recorders write it
        return None
    if nearest not in _TURNS or np.abs(exact - nearest).max() > _TOLERANCE:
        raise UnusableImage("it is shown turned by other than a quarter, or slanted", REFUSED)
    return _TURNS[nearest]
