"""Shards of sound words: failed rows, zero bags, resume, the same bytes."""

import csv
from pathlib import Path

import numpy as np
import pytest

from pipeline.clips.extract_clips import extract_clips
from pipeline.clips.sound.extract_sound import extract_sound, silent_rows
from pipeline.clips.sound.words import load_sound_words
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.folder import read_folder
from pipeline.images.networks import WeightsError
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import Compute, Storage
from pipeline.store.shards.feature_set import FeatureSet
from tests.clips.factories import encode, tone, write_changing_sound, write_wav
from tests.project import Recorder, contents

pytest.importorskip("av", reason="needs the extra clips")

RECIPE = "mfcc-bow-8"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Ten tones, the last two for the test, one file of no format and one too short."""
    root = tmp_path / "sounds"
    with (tmp_path / "captions.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "caption", "split"])
        for number in range(10):
            rows.writerow([f"{number}.wav", "a tone", "test" if number > 7 else "train"])
            write_wav(root / f"{number}.wav", tone(200 + 150 * number, 0.3))
        rows.writerows([["bad.wav", "noise", "test"], ["short.wav", "a click", "test"]])
        (root / "bad.wav").write_bytes(b"no sound" * 9)
        write_wav(root / "short.wav", tone(440, 0.01))
    manifest = read_folder(root, tmp_path / "captions.csv", name="tones", media="clips")
    manifest.write(tmp_path / "data")
    return tmp_path / "data"


def test_rows_ids_and_failures(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "features" / RECIPE
    index = extract_sound(dataset, out, recipe=RECIPE)
    rows = FeatureSet(out)
    assert (index.rows, index.failed_rows, silent_rows(out)) == (12, 1, 1)
    assert [failure[0] for failure in rows.failures()] == ["bad.wav"]
    np.testing.assert_array_equal(rows.read(["short.wav"]), np.zeros((1, 8)))
    whole = rows.read(["9.wav", "0.wav"])
    np.testing.assert_allclose(whole.sum(1), 1, rtol=1e-6)
    codebook = out.with_name("mfcc-8.codebook.safetensors")
    assert load_sound_words(codebook).metadata.clips == 8
    assert index.header.weights_sha256 == load_sound_words(codebook).sha256


def test_strange_sounds_end_no_run(dataset: Path, tmp_path: Path) -> None:
    sounds = tmp_path / "sounds"
    write_wav(sounds / "1.wav", *[tone(440, 0.3)] * 8)
    write_changing_sound(tmp_path / "a.aac").rename(sounds / "3.wav")
    cut = (sounds / "5.wav").read_bytes()
    (sounds / "5.wav").write_bytes(cut[: len(cut) // 2])
    out = tmp_path / "features" / RECIPE
    assert extract_sound(dataset, out, recipe=RECIPE).failed_rows == 2
    rows = FeatureSet(out)
    assert [failure[0] for failure in rows.failures()] == ["5.wav", "bad.wav"]
    assert "the file is not whole" in rows.failures()[0][-1]
    assert np.isfinite(rows.read(["0.wav", "1.wav", "2.wav", "3.wav"])).all()


def test_on_other_threads_the_bytes_are_the_same(dataset: Path, tmp_path: Path) -> None:
    for folder, threads in (("a", 1), ("b", 3)):
        out, compute = tmp_path / folder / RECIPE, Compute(threads=threads)
        extract_sound(dataset, out, recipe=RECIPE, compute=compute)
    assert contents(tmp_path / "a" / RECIPE) == contents(tmp_path / "b" / RECIPE)


def test_sounds_stand_side_by_side_each_at_length_1(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "features" / "both"
    index = extract_clips(dataset, out, recipe="mfcc-bow-8+mfcc-bow-8-halves")
    assert (index.rows, index.failed_rows, index.header.row_shape) == (12, 1, (24,))
    (row,) = FeatureSet(out).read(["3.wav"]).astype(np.float64)
    assert np.linalg.norm(row[:8]) == pytest.approx(1)
    assert np.linalg.norm(row[8:]) == pytest.approx(1)
    with pytest.raises(WrongUsage, match=r"`codebook=.*` applies to recipes of sound words"):
        extract_clips(dataset, out, recipe="efficientnet-lite0-pool", compute=Compute(codebook=out))


def test_clips_without_sound_and_with_less_of_it_are_said(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    encode(tmp_path / "clips/less.mp4", "aac", tone(440, 0.5), frames=30)
    encode(tmp_path / "clips/none.mp4", "aac", None, frames=10)
    encode(tmp_path / "clips/whole.mp4", "aac", tone(880, 1.0), frames=10)
    entries = [ImageEntry(n, f"{n}.mp4", "train", ()) for n in ("less", "none", "whole")]
    Manifest("m", tmp_path / "clips", tuple(entries), "", "", {}, media="clips").write(tmp_path)

    out = tmp_path / "features" / "mfcc-bow-4"
    extract_sound(tmp_path, out, recipe="mfcc-bow-4", monitor=(record := Recorder()))
    assert any("1 of 3 rows are zero: no sound" in line for line in record.lines)
    (said,) = [line for line in record.lines if "of another length" in line]
    assert said.startswith("1 clips have")
    assert "less: 0.5 s of sound, 3.0 s of video" in said


def test_a_codebook_of_other_clips_is_asked_for_by_name(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "features" / RECIPE
    extract_sound(dataset, out, recipe=RECIPE)
    write_wav(tmp_path / "sounds" / "0.wav", tone(300, 0.4))
    with pytest.raises(WeightsError, match="fitted on other clips than split 'train'"):
        extract_sound(dataset, out, recipe=RECIPE)
    codebook = out.with_name("mfcc-8.codebook.safetensors")
    extract_sound(dataset, out, recipe=RECIPE, compute=Compute(codebook=codebook))
    extract_sound(dataset, out, recipe=RECIPE, storage=Storage(update=True))
    whole = tmp_path / "b" / RECIPE
    extract_sound(dataset, whole, recipe=RECIPE)
    for name in (f"{RECIPE}/index.json", codebook.name):
        assert (out.parent / name).read_bytes() == (whole.parent / name).read_bytes()
    assert not [*out.parent.glob("*~*")], "rows of a codebook that is gone are replaced"
