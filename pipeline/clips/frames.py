"""The frames of a clip at the times of several samplings, decoded once and in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from PIL import Image

from pipeline.clips.clip_file import ClipFile, require_time
from pipeline.clips.sampling import Sampling
from pipeline.images.decoding.decode import UnusableImage
from pipeline.store.shards.format import REFUSED

if TYPE_CHECKING:
    from av import VideoFrame

DECODING = "pyav, times of presentation, rotation applied, swscale to rgb24"
"""The decoding rule of every clip recipe."""

_QUARTER_TURNS = {
    1: Image.Transpose.ROTATE_90,
    2: Image.Transpose.ROTATE_180,
    3: Image.Transpose.ROTATE_270,
}


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
        return SampledFrame(_upright(frame), since, tuple(times)) if any(times) else None

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


def _upright(frame: "VideoFrame") -> Image.Image:
    image: Any = frame.to_image()
    turn = _QUARTER_TURNS.get(round(frame.rotation / 90) % 4)
    upright: Image.Image = image if turn is None else image.transpose(turn)
    return upright
