"""Codebooks of sound words and their bags, against naive counts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.clips.sound.mfcc import Mfcc
from pipeline.clips.sound.recipes import BagRecipe, bag_recipe
from pipeline.clips.sound.words import (
    SoundWords,
    fit_sound_words,
    load_sound_words,
    sample_of,
)
from pipeline.images.networks import WeightsError
from pipeline.store.errors import UnknownName

_RNG = np.random.default_rng(0)
WINDOWS: Any = (_RNG.normal(size=(60, 39)) * np.arange(1, 40)).astype(np.float32)


def fitted(number: int = 8, seed: int = 0) -> SoundWords:
    return fit_sound_words(
        [WINDOWS[:40], WINDOWS[:0], WINDOWS[40:]],
        Mfcc(),
        number,
        seed=seed,
        dataset="drawn",
        split="train",
        clips_sha256="0" * 64,
    )


def naive_counts(words: SoundWords, windows: np.ndarray, soft: bool) -> np.ndarray:
    counts = np.zeros(len(words.words))
    for window in windows:
        standard = (window - words.mean) / words.scale
        order = sorted(
            range(len(words.words)), key=lambda k: float(((standard - words.words[k]) ** 2).sum())
        )
        if soft:
            for rank, weight in enumerate((8, 4, 2, 1)):
                counts[order[rank]] += weight / 15
        else:
            counts[order[0]] += 1
    return counts


@pytest.mark.parametrize("soft", [False, True])
def test_counts_are_the_naive_ones(soft: bool) -> None:
    words = fitted()
    row = words.bag(WINDOWS, BagRecipe("x", 8, soft=soft, norm="counts"))
    expected = naive_counts(words, WINDOWS, soft)
    np.testing.assert_allclose(row, expected, rtol=1e-6)
    assert row.sum() == pytest.approx(len(WINDOWS))
    assert row.dtype == np.float32
    for norm, wanted in {
        "l1": expected / expected.sum(),
        "l2": expected / np.sqrt((expected**2).sum()),
        "root": np.sqrt(expected / expected.sum()),
    }.items():
        recipe = bag_recipe(f"mfcc-bow-8{'-soft' * soft}-{norm}")
        np.testing.assert_allclose(words.bag(WINDOWS, recipe), wanted, rtol=1e-6)


def test_halves_know_the_order_and_the_whole_does_not() -> None:
    words, recipe = fitted(), bag_recipe("mfcc-bow-8-halves")
    early, late = WINDOWS[:30], WINDOWS[30:]
    there, back = (words.bag(np.concatenate(p), recipe) for p in ((early, late), (late, early)))
    np.testing.assert_array_equal(there, np.roll(back, 8))
    assert (there != back).any()
    whole = replace(recipe, halves=False)
    np.testing.assert_array_equal(
        words.bag(np.concatenate([early, late]), whole),
        words.bag(np.concatenate([late, early]), whole),
    )
    np.testing.assert_array_equal(words.bag(WINDOWS[:0], recipe), np.zeros(16))


def test_the_same_windows_and_seed_give_the_same_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in "abc"]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        fitted(seed=seed).save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes() != paths[2].read_bytes()
    words = load_sound_words(paths[0])
    assert words.sha256 == fitted().sha256 != load_sound_words(paths[2]).sha256
    assert (words.metadata.clips, words.metadata.windows) == (2, 60)


def test_another_codebook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    fitted().save(path)
    with pytest.raises(WeightsError, match=r"has 8 words .* needs 9"):
        load_sound_words(path).require(bag_recipe("mfcc-bow-9"), "a")
    with pytest.raises(WeightsError, match="no window of sound, but a codebook needs at least"):
        fit_sound_words(
            [], Mfcc(), 8, seed=0, dataset="drawn", split="train", clips_sha256="0" * 64
        )


def test_words_shrink_to_the_windows_and_rows_do_not(tmp_path: Path) -> None:
    words, recipe = fitted(64), bag_recipe("mfcc-bow-64-soft-counts")
    assert (len(words.words), words.metadata.requested) == (60, 64)
    words.save(tmp_path / "few.safetensors")
    read = load_sound_words(tmp_path / "few.safetensors")
    read.require(recipe, "a")
    row = read.bag(WINDOWS, recipe)
    assert row.shape == recipe.shape == (64,)
    np.testing.assert_allclose(row[:60], naive_counts(words, WINDOWS, soft=True), rtol=1e-6)
    assert not row[60:].any()
    assert fitted(60).metadata.requested == 60
    replace(words, metadata=replace(words.metadata, requested=None)).save(tmp_path / "older")
    with pytest.raises(WeightsError, match=r"has 60 words .* needs 64"):
        load_sound_words(tmp_path / "older").require(recipe, "a")


def test_names_say_all() -> None:
    recipe = bag_recipe("mfcc-bow-1024-soft-halves-root")
    assert (recipe.words, recipe.soft, recipe.halves, recipe.norm) == (1024, True, True, "root")
    assert recipe.shape == (2048,)
    assert recipe.to_json()["mfcc"]["rate"] == 16_000
    for wrong in ("mfcc-bow", "mfcc-bow-0", "mfcc-bow-10-l3", "mfcc-bow-10-halves-soft"):
        with pytest.raises(UnknownName, match="mfcc-bow-1024"):
            bag_recipe(wrong)


def test_the_sample_has_its_share_of_each_clip() -> None:
    assert len(sample_of(WINDOWS, 0, 3, 0, 31)) == 11
    np.testing.assert_array_equal(sample_of(WINDOWS, 0, 3, 0, 31), sample_of(WINDOWS, 0, 3, 0, 31))
    assert sample_of(WINDOWS, 0, 1, 0, 60) is WINDOWS
