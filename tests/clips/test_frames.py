"""Frames at times: against the times written, FFmpeg's own list, and a naive choice."""

import re
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from pipeline.clips.clip_file import LIMITS, Limits, clip_crc32, open_clip
from pipeline.clips.frames import SampledFrame, _turn, sampled_frames
from pipeline.clips.sampling import Sampling
from pipeline.images.decoding.decode import UnusableImage
from pipeline.images.recipes import RecipeError
from pipeline.store.shards.format import MISSING, REFUSED, UNREADABLE
from tests.clips.moving import av, number_of, picture, shown_by, write_clip
from tests.project import SHARED

UNEVEN = [0, 100, 150, 400, 420, 1000, 1010, 1500, 1700, 2500]


def frames_of(path: Path, *rules: str, limits: Limits = LIMITS) -> list[SampledFrame]:
    with open_clip(path, [], limits) as clip:
        return list(sampled_frames(clip, [Sampling(rule) for rule in rules]))


def taken(path: Path, rule: str, frames: int) -> list[int]:
    """Return the number of the frame that is taken at each time."""
    return [
        number_of(np.asarray(frame.image), frames)
        for frame in frames_of(path, rule)
        for _ in frame.times[0]
    ]


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_times_of_variable_rate(tmp_path: Path, name: str) -> None:
    path = write_clip(tmp_path / name, milliseconds=UNEVEN)
    found = [frame.shown_at for frame in frames_of(path, "all")]
    assert found == [Fraction(ms, 1000) for ms in UNEVEN]
    assert taken(path, "all", 10) == list(range(10))
    times = [Fraction(k, 4) for k in range(11)]  # the last frame lasts 0.1 s
    naive = [max(i for i, ms in enumerate(UNEVEN) if ms <= 1000 * t) for t in times]
    assert taken(path, "every:0.25", 10) == naive


@pytest.mark.parametrize(
    ("name", "codec", "frames"),
    [
        ("a.mp4", "libx264", 30),
        ("a.avi", "mpeg4", 7),
        ("a.gif", "gif", 10),
        ("a.webm", "libvpx", 5),
    ],
)
def test_constant_rate(tmp_path: Path, name: str, codec: str, frames: int) -> None:
    """Also with frames that are stored in another order than they are shown in."""
    path = write_clip(tmp_path / name, frames, codec=codec)
    assert taken(path, "all", frames) == list(range(frames))
    assert taken(path, "fps:10", frames) == list(range(frames))
    assert taken(path, "every:0.3", frames) == list(range(0, frames, 3))
    assert taken(path, "every:0.05", frames) == [k // 2 for k in range(2 * frames)]
    assert taken(path, "even:1", frames) == [frames // 2]
    # In the middle of thirds of the time.
    assert taken(path, "even:3", frames) == [(2 * k + 1) * frames // 6 for k in range(3)]
    assert taken(path, "every:99", frames) == [0]


def test_times_as_ffmpeg_lists_them(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="no ffmpeg to compare with")
    program = ffmpeg.get_ffmpeg_exe()
    uneven = write_clip(tmp_path / "v.mp4", milliseconds=UNEVEN)
    clips = [uneven, write_clip(tmp_path / "c.mp4", 30, codec="libx264")]
    # Real ones, of which one has stamps exchanged.
    clips += sorted((SHARED / "data/clips/msvd").glob("j2D*.avi"))
    for path in clips:
        listed = subprocess.run(
            [program, "-i", path, "-vf", "showinfo", "-f", "null", "-"],
            capture_output=True, text=True, check=True,
        ).stderr  # fmt: skip
        expected = [float(time) for time in re.findall(r"pts_time:([\d.]+)", listed)]
        found = [float(frame.shown_at) for frame in frames_of(path, "all")]
        np.testing.assert_allclose(found, np.subtract(expected, expected[0]), atol=1e-4)


def test_several_samplings_decode_once(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4")
    found = frames_of(path, "every:0.5", "even:2", "every:0.25")
    assert [(float(f.shown_at), [list(map(float, t)) for t in f.times]) for f in found] == [
        (0.0, [[0.0], [], [0.0]]),
        (0.2, [[], [0.25], [0.25]]),
        (0.5, [[0.5], [], [0.5]]),
        (0.7, [[], [0.75], [0.75]]),
    ]


@pytest.mark.parametrize(
    ("matrix", "shown"),
    [
        ((0, 1, -1, 0), lambda p: np.rot90(p, 3)),
        ((-1, 0, 0, -1), lambda p: np.rot90(p, 2)),
        ((0, -1, 1, 0), lambda p: np.rot90(p, 1)),
        ((-1, 0, 0, 1), lambda p: p[:, ::-1]),
        ((1, 0, 0, -1), lambda p: p[::-1]),
        ((0, 1, 1, 0), lambda p: p.transpose(1, 0, 2)),
        ((0, -1, -1, 0), lambda p: p[::-1, ::-1].transpose(1, 0, 2)),
        ((0, 0, 0, 0), lambda p: p),
        ((2, 0, 0, 1), lambda p: p.repeat(2, axis=1)),
    ],
)
def test_frames_are_turned_mirrored_and_stretched(
    tmp_path: Path,
    matrix: tuple[int, int, int, int],
    shown: Callable[[np.ndarray], np.ndarray],
) -> None:
    path = shown_by(write_clip(tmp_path / "a.mp4", frames=1), *matrix)
    image = np.asarray(frames_of(path, "all")[0].image).astype(int)
    expected = shown(picture(0, 1)).astype(int)
    assert image.shape == expected.shape
    assert np.abs(image - expected).mean() < 8


def test_pixels_that_are_not_square_are_shown_as_stated(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", frames=1, aspect=Fraction(3, 2))
    assert frames_of(path, "all")[0].image.size == (72, 32)
    limits = Limits(pixels=48 * 32)
    with pytest.raises(UnusableImage, match=r"its pixels have the aspect 1\.5"):
        frames_of(path, "all", limits=limits)


def test_frames_are_cropped_to_the_pixel(tmp_path: Path) -> None:
    whole = write_clip(tmp_path / "a.mp4", 1, codec="libx264", size=(96, 64))
    with av.open(str(whole)) as source, av.open(str(tmp_path / "b.mp4"), "w") as out:
        stream = out.add_stream_from_template(source.streams.video[0])
        crop = av.bitstream.BitStreamFilterContext(
            "h264_metadata=crop_left=6:crop_top=2", source.streams.video[0], stream
        )
        for packet in source.demux(video=0):
            for cropped in crop.filter(packet if packet.size else None):
                out.mux(cropped)
    (cropped,), (frame,) = (frames_of(tmp_path / name, "all") for name in ("b.mp4", "a.mp4"))
    assert cropped.image.size == (90, 62)
    np.testing.assert_array_equal(cropped.image, frame.image.crop((6, 2, 96, 64)))


@pytest.mark.parametrize("matrix", [(1, 0.5, 0, 1), (0.7071, 0.7071, -0.7071, 0.7071)])
def test_a_slanted_frame_is_refused(tmp_path: Path, matrix: tuple[float, ...]) -> None:
    with pytest.raises(UnusableImage, match="slanted"):
        frames_of(shown_by(write_clip(tmp_path / "a.mp4", frames=1), *matrix), "all")


def test_frames_have_data_that_pyav_does_not_know(tmp_path: Path) -> None:
    """The EXIF data of moving AVIF pictures, whose still comes first, are of FFmpeg's type 31."""
    pictures = [Image.new("RGB", (64, 48), (60 * number, 0, 0)) for number in range(3)]
    exif = Image.Exif()
    exif[0x10E] = "a description"
    kinds: dict[str, dict[str, Any]] = {"plain.avif": {}, "described.avif": {"exif": exif}}
    for name, options in kinds.items():
        pictures[0].save(
            tmp_path / name, save_all=True, append_images=pictures[1:], duration=9, **options
        )
    plain, described = (
        np.stack([np.asarray(frame.image) for frame in frames_of(tmp_path / name, "all")])
        for name in kinds
    )
    assert plain.shape == (3, 48, 64, 3)
    np.testing.assert_array_equal(plain, described)


@pytest.mark.parametrize("degrees", [0, 90])
def test_unknown_data_hide_how_a_frame_is_turned(degrees: int) -> None:
    class Frame:
        rotation = degrees

        @property
        def side_data(self) -> dict[str, bytes]:
            raise ValueError("31 is not a valid Type")

    turned = pytest.raises(UnusableImage, match="turned, and PyAV cannot read how: 31")
    with turned if degrees else nullcontext():
        assert _turn(cast(Any, Frame())) is None


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mkv", "mpeg4"), ("a.webm", "libvpx"), ("a.wmv", "wmv2")]
)
def test_a_clip_that_starts_late_is_whole_and_its_beginning_is_not(
    tmp_path: Path, name: str, codec: str
) -> None:
    """These containers state when the clip ends, not how long it is."""
    late = {"output_ts_offset": "20"}
    path = write_clip(tmp_path / name, 10, codec=codec, gop=1, options=late)
    on_time = write_clip(tmp_path / f"b{path.suffix}", 10, codec=codec, gop=1)
    assert taken(path, "even:2", 10) == taken(on_time, "even:2", 10)
    if name != "a.wmv":  # a cut one states no length
        with pytest.raises(UnusableImage, match="not whole"):
            frames_of(_truncated(path), "all")


def test_what_is_read_is_the_same_twice(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", codec="libx264")
    first, second = (frames_of(path, "even:4") for _ in range(2))
    assert [f.image.tobytes() for f in first] == [f.image.tobytes() for f in second]


def _truncated(path: Path, share: float = 0.6) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def _saved(path: Path) -> Path:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(path, "PNG")
    return path


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _sound(path: Path) -> Path:
    from tests.clips.factories import tone, write_wav

    write_wav(path.with_suffix(".wav"), tone(440))
    av = pytest.importorskip("av")
    with av.open(str(path.with_suffix(".wav"))) as read, av.open(str(path), "w") as written:
        stream = written.add_stream("aac", rate=16_000)
        for frame in read.decode(audio=0):
            written.mux(stream.encode(frame))
        written.mux(stream.encode())
    return path


def _pipe(path: Path) -> Path:
    import os

    os.mkfifo(path)
    return path


def _link(path: Path, target: str) -> Path:
    path.symlink_to(target)
    return path


def _damaged(path: Path) -> Path:
    data = bytearray(write_clip(path, 20, codec="libx264", size=(96, 64)).read_bytes())
    start = data.index(b"mdat") + 60
    data[start : start + 900] = b"\xa5" * 900
    path.write_bytes(data)
    return path


SUBTITLES = "1\n00:00:01,000 --> 00:00:02,000\nhello\n"


@pytest.mark.parametrize(
    ("make", "status", "message"),
    [
        (lambda p: p / "gone.mp4", MISSING, "no such file"),
        (lambda p: p, UNREADABLE, "not an ordinary file"),
        (lambda p: _pipe(p / "a.mp4"), UNREADABLE, "not an ordinary file"),
        (lambda p: _link(p / "a.mp4", "/dev/zero"), UNREADABLE, "not an ordinary file"),
        (lambda p: _text(p / "a.mp4", ""), UNREADABLE, "not a clip of a known format"),
        (lambda p: _text(p / "a.mp4", "\0" * 9999), UNREADABLE, "not a clip of a known"),
        (lambda p: _saved(p / "a.mp4"), UNREADABLE, r"a picture \(PNG\), not a clip"),
        (lambda p: _text(p / "a.mp4", SUBTITLES), UNREADABLE, "not a clip of a known"),
        (lambda p: _sound(p / "a.mp4"), UNREADABLE, "no stream of frames in it, but audio"),
        (lambda p: write_clip(p / "a.avi", frames=0), UNREADABLE, "no frames|not a clip"),
        (
            lambda p: _truncated(write_clip(p / "a.mp4", options={"movflags": "faststart"}, gop=1)),
            UNREADABLE,
            "the file is not whole",
        ),
        (lambda p: _truncated(write_clip(p / "a.mp4", gop=1)), UNREADABLE,
         "damaged|no stream"),
        (lambda p: _truncated(write_clip(p / "a.webm", codec="libvpx", gop=1)), UNREADABLE,
         "not whole"),
        (lambda p: _truncated(write_clip(p / "a.gif", codec="gif")), UNREADABLE, "not whole"),
        (lambda p: _damaged(p / "a.mp4"), UNREADABLE, "damaged|decoded"),
        (lambda p: _text(p / "a.mp4", "#EXTM3U\n#EXTINF:1,\n/etc/passwd\n"), UNREADABLE,
         "not a clip"),
    ],
)  # fmt: skip
def test_bad_files_have_their_reason(
    tmp_path: Path, make: Callable[[Path], Path], status: int, message: str
) -> None:
    with pytest.raises(UnusableImage, match=message) as raised:
        frames_of(make(tmp_path), "all")
    assert raised.value.status == status


def test_limits(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4")
    for limits, message in (
        (Limits(seconds=0.5), r"1\.0 s are more than the limit of 0\.5 s"),
        (Limits(pixels=100), "48 x 32 pixels are more than the limit of 100"),
        (Limits(bytes=10), "bytes are more than the limit of 10"),
        (Limits(reading_seconds=-1), "reading it took more than -1 s"),
    ):
        with pytest.raises(UnusableImage, match=message) as raised:
            frames_of(path, "all", limits=limits)
        assert raised.value.status == REFUSED


def test_a_long_gif_is_read_a_frame_at_a_time(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.gif", 600, codec="gif", size=(16, 16))
    with open_clip(path, []) as clip:
        found = sampled_frames(clip, [Sampling("every:0.5")])
        assert sum(1 for _ in found) == 120


def test_crc32_is_that_of_the_bytes(tmp_path: Path) -> None:
    import zlib

    path = write_clip(tmp_path / "a.mp4")
    crc32: list[int] = []
    with open_clip(path, crc32):
        pass
    assert [clip_crc32(path)] == crc32 == [zlib.crc32(path.read_bytes())]
    assert clip_crc32(tmp_path / "gone") == 0


@pytest.mark.parametrize(
    "rule", ["every:0", "every:-1", "even:2.5", "even:0", "fps", "some", "all:3"]
)
def test_unknown_rules(rule: str) -> None:
    with pytest.raises(RecipeError, match=r"expected every:SECONDS"):
        Sampling(rule)
