"""The sound of files: samples, mixing, rates, and whatever is no sound."""

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.clips.sound.read_sound import decode_sound, read_sound
from pipeline.images.decoding.decode import UnusableImage
from pipeline.store.shards.format import MISSING, OK, REFUSED, UNREADABLE
from tests.clips.factories import RATE, encode, tone, write_changing_sound, write_wav

pytest.importorskip("av", reason="needs the extra clips")


def test_samples_are_those_of_the_file(tmp_path: Path) -> None:
    sound = tone(440)
    found = read_sound(write_wav(tmp_path / "a.wav", sound), RATE)
    assert (found.status, found.reason, found.seconds) == (OK, "", None)
    assert found.source_crc32
    assert found.samples is not None
    assert found.samples.dtype == np.float32
    np.testing.assert_allclose(found.samples, sound, atol=1e-4)


def test_channels_are_mixed_and_rates_changed(tmp_path: Path) -> None:
    left, right = tone(440), tone(880)
    stereo = read_sound(write_wav(tmp_path / "a.wav", left, right), RATE).samples
    assert stereo is not None
    np.testing.assert_allclose(stereo, (left + right) / 2, atol=1e-3)
    half = read_sound(write_wav(tmp_path / "b.wav", tone(440, rate=8000), rate=8000), RATE).samples
    assert half is not None
    assert abs(len(half) - 8000) <= 2
    assert np.argmax(np.abs(np.fft.rfft(half))) == pytest.approx(220, abs=2)


@pytest.mark.parametrize("channels", [7, 8, 9, 16, 24])
def test_many_channels_are_mixed(tmp_path: Path, channels: int) -> None:
    tones = [tone(200 + 50 * k, 0.1) for k in range(channels)]
    found = read_sound(write_wav(tmp_path / "a.wav", *tones), RATE)
    assert found.samples is not None
    np.testing.assert_allclose(found.samples, np.mean(tones, axis=0), atol=1e-4)


def test_rate_and_channels_may_change_midway(tmp_path: Path) -> None:
    found = read_sound(write_changing_sound(tmp_path / "a.aac"), RATE)
    assert found.samples is not None
    assert len(found.samples) == pytest.approx(RATE, rel=0.15)
    for half in np.array_split(found.samples, 2):
        spectrum = np.abs(np.fft.rfft(half))
        assert np.argmax(spectrum) / len(half) * RATE == pytest.approx(440, abs=4)


@pytest.mark.parametrize(
    ("name", "codec"), [("a.aiff", "pcm_s16be"), ("a.au", "pcm_s16be"), ("a.wav", "pcm_s16le"),
                        ("a.flac", "flac"), ("a.mkv", "aac"), ("a.mp4", "aac"), ("a.avi", "mp3")],
)  # fmt: skip
def test_a_sound_that_ends_early_is_unreadable(tmp_path: Path, name: str, codec: str) -> None:
    whole = encode(tmp_path / name, codec, tone(440, 2.0)).read_bytes()
    assert read_sound(tmp_path / name, RATE).status == OK
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    found = read_sound(tmp_path / name, RATE)
    assert (found.status, found.samples) == (UNREADABLE, None)


def test_a_length_that_is_wrong_is_unreadable(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.flac", "flac", tone(440, 2.0))
    whole = path.read_bytes()
    # Magic, header and first bytes of STREAMINFO, whose last 32 of 36 bits count the samples.
    assert int.from_bytes(whole[22:26]) == 2 * RATE
    path.write_bytes(whole[:22] + (3 * RATE).to_bytes(4) + whole[26:])
    assert "ends after 2.00 of 3.00 s" in read_sound(path, RATE).reason
    # The last block of metadata takes all frames for its own.
    second = whole.index(b"\x84", 42)
    path.write_bytes(whole[: second + 1] + len(whole).to_bytes(3) + whole[second + 4 :])
    assert read_sound(path, RATE).status == UNREADABLE


def test_a_recording_of_unknown_length_is_read(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", tone(440))
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 4 + whole[8:40] + b"\xff" * 4 + whole[44:])
    found = read_sound(path, RATE)
    assert (found.status, found.reason) == (OK, "")
    assert found.samples is not None
    np.testing.assert_allclose(found.samples, tone(440), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mp3", "mp3"), ("a.ogg", "libopus"), ("a.mp4", "aac")]
)
def test_coded_sound_has_its_pitch(tmp_path: Path, name: str, codec: str) -> None:
    found = read_sound(encode(tmp_path / name, codec, tone(1000, 1.0)), RATE)
    assert found.samples is not None
    assert len(found.samples) == pytest.approx(RATE, rel=0.15)
    spectrum = np.abs(np.fft.rfft(found.samples))
    assert np.argmax(spectrum) / len(found.samples) * RATE == pytest.approx(1000, abs=3)


def test_clips_without_sound_and_with_too_little(tmp_path: Path) -> None:
    silent = read_sound(encode(tmp_path / "a.mp4", "aac", None, frames=10), RATE)
    assert silent.status == OK
    assert silent.samples is not None
    assert not len(silent.samples)
    short = read_sound(encode(tmp_path / "b.mp4", "aac", tone(440, 0.2), frames=30), RATE)
    assert short.seconds == pytest.approx(3.0)
    assert short.samples is not None
    assert len(short.samples) < RATE


def test_what_is_no_sound_has_its_reason(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "text.mp4").write_text("not a clip\n" * 100)
    (tmp_path / "empty.wav").touch()
    (tmp_path / "list.mp4").write_text(f"#EXTM3U\n#EXTINF:1,\n{tmp_path}/a.wav\n#EXT-X-ENDLIST\n")
    (tmp_path / "subtitles.mp4").write_text("1\n00:00:00,000 --> 00:00:01,000\nHello\n\n" * 9)
    Image.new("RGB", (8, 8)).save(tmp_path / "picture.mp4", format="PNG")
    whole = encode(tmp_path / "whole.mp4", "aac", tone(440), frames=10).read_bytes()
    (tmp_path / "truncated.mp4").write_bytes(whole[: len(whole) // 2])
    os.mkfifo(tmp_path / "endless.mp4")
    for name, status in {
        "text.mp4": UNREADABLE,
        "empty.wav": UNREADABLE,
        "list.mp4": UNREADABLE,
        "subtitles.mp4": UNREADABLE,
        "picture.mp4": UNREADABLE,
        "truncated.mp4": UNREADABLE,
        "endless.mp4": UNREADABLE,
        "nowhere.mp4": MISSING,
    }.items():
        found = read_sound(tmp_path / name, RATE)
        assert (found.status, found.samples) == (status, None), name
        assert found.reason
        assert str(tmp_path) not in found.reason


def test_a_sound_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", tone(440, 3.0))
    with (
        path.open("rb") as file,
        pytest.raises(UnusableImage, match="longer than the limit of 1 s") as raised,
    ):
        decode_sound(file, RATE, most=1.0)
    assert raised.value.status == REFUSED
