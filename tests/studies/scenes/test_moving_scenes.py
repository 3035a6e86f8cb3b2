"""Drawn clips: twins differ in the order of their events alone, and a seed fixes all bytes."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.studies.scenes.moving.draw_clips import draw_moving_scenes, twin_of
from pipeline.studies.scenes.moving.event_captions import captions_of
from pipeline.studies.scenes.moving.events import KINDS, SIZE, Actor, Event, sample_moving_scene
from pipeline.studies.scenes.moving.film import (
    FRAMES,
    RATE,
    background_of,
    frames_of,
    sound_of,
)

RNG = np.random.default_rng


def draw(folder: Path, clips: int = 6, seed: int = 0) -> Manifest:
    pytest.importorskip("av", reason="needs the extra clips")
    return draw_moving_scenes(folder, clips, seed)


def event(kind: str) -> Event:
    left = Actor("star", "red", 10, ((24, 48),))
    return Event(kind, left, Actor("heart", "blue", 10, ((72, 48),)), 1.0)


def words_of(caption: str) -> list[str]:
    return caption.lower().strip(".").replace(",", "").split()


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_is_seen_and_leaves_all_as_it_was(kind: str) -> None:
    hidden = (event(kind).actor,) if kind == "appear" else ()
    background = background_of("white", RNG(0))
    pixels = [np.asarray(frame).astype(int) for frame in frames_of(event(kind), background, hidden)]
    assert len(pixels) == FRAMES
    assert pixels[0].shape == (SIZE, SIZE, 3)
    np.testing.assert_array_equal(pixels[0], pixels[-1])
    assert np.abs(pixels[FRAMES // 2 - 1] - pixels[0]).sum() > 1000


def test_only_those_that_collide_touch() -> None:
    """In the middle of a collision, one blob is where otherwise two are."""

    def gap(kind: str) -> int:
        frame = frames_of(event(kind), Image.new("RGB", (SIZE, SIZE), "white"), ())[8]
        drawn = np.asarray(frame).min(axis=(0, 2)) < 250
        inside = np.flatnonzero(drawn)
        return int((~drawn[inside[0] : inside[-1]]).sum())

    assert gap("collide") <= 4 < 10 <= gap("right")


def test_each_kind_has_its_own_tone() -> None:
    found = []
    for kind in KINDS:
        sound = sound_of(event(kind), RNG(0))
        assert np.abs(sound).max() <= 1
        found.append(float(np.abs(np.fft.rfft(sound)).argmax()) * RATE / len(sound))
    steps = np.array(found[1:]) / found[:-1]
    np.testing.assert_allclose(steps, 2**0.4, rtol=0.01)


def test_captions_of_twins_have_the_same_words_in_another_order() -> None:
    for seed in range(50):
        rng = RNG(seed)
        scene = sample_moving_scene(rng)
        one, two = scene.events
        assert one.kind != two.kind
        assert one.actor == two.other
        there, back = captions_of(scene, rng)
        assert len({*there, *back}) == 10
        for left, right in zip(there, back, strict=True):
            words = [
                sorted(text.lower().strip(".").replace(",", "").split()) for text in (left, right)
            ]
            assert words[0] == words[1]


def test_a_seed_fixes_all_bytes_and_a_clip_does_not_depend_on_their_number(tmp_path: Path) -> None:
    for name, clips, seed in (("a", 6, 0), ("b", 8, 0), ("c", 6, 1)):
        draw(tmp_path / name, clips, seed).write(tmp_path / name)
    names = sorted(path.name for path in (tmp_path / "a/clips").iterdir())
    assert len(names) == 6
    a, b, c = ([(tmp_path / folder / "clips" / n).read_bytes() for n in names] for folder in "abc")
    assert a == b
    assert all(left != right for left, right in zip(a, c, strict=True))
    draw(tmp_path / "b", 6).write(tmp_path / "b")
    assert len([*(tmp_path / "b/clips").iterdir()]) == 6
    found = read_manifest(tmp_path / "b")
    assert found.counts == {"train": 2, "val": 2, "test": 2}
    assert found.media == "clips"
    assert [twin_of(entry.id) for entry in found.entries[:2]] == [
        e.id for e in found.entries[1::-1]
    ]


def test_a_clip_has_its_frames_and_its_sound(tmp_path: Path) -> None:
    draw(tmp_path)
    import av

    with av.open(str(tmp_path / "clips/moving-00001.mp4")) as clip:
        times = [float(frame.time or 0) for frame in clip.decode(video=0)]
    assert times == [k / 8 for k in range(2 * FRAMES)]
    with av.open(str(tmp_path / "clips/moving-00001.mp4")) as clip:
        samples = np.concatenate([f.to_ndarray()[0] for f in clip.decode(audio=0)])
    assert len(samples) == pytest.approx(4 * RATE, abs=2048)


def test_gif_needs_no_encoder_and_has_no_sound(tmp_path: Path) -> None:
    manifest = draw_moving_scenes(tmp_path, 6, 0, "gif")
    assert manifest.notes["samples_per_second"] == 0
    with Image.open(tmp_path / "clips/moving-00000.gif") as clip:
        assert clip.size == (SIZE, SIZE)


@pytest.mark.parametrize("clips", [0, 4, 7, 100_002])
def test_a_number_that_makes_no_pairs_is_refused(clips: int, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="an even number from 6"):
        draw_moving_scenes(tmp_path, clips, 0)
