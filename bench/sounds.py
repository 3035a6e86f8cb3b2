"""Nearest-neighbour classification of labelled sounds by audio features.

    python -m bench.sounds --sounds FOLDER --table esc10.tsv [--folds 4] [RECIPE...]

The table has the columns `file`, `class` and `fold`. For each named fold, the sounds of the other
folds are the training split, on which codebooks are fitted, and each sound of the fold gets the
class of its nearest training sound by cosine. Prints the accuracy in per cent, chance, and the
seconds of MFCC against librosa's, if it is installed.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path

import numpy as np

from pipeline.clips.sound.extract_sound import extract_sound
from pipeline.clips.sound.mfcc import Mfcc
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.shards.feature_set import read_features

RECIPES = ("mfcc-bow-1024", "mfcc-bow-1024-soft")


def right_classes(
    rows: list[dict[str, str]], sounds: Path, fold: str, recipe: str, folder: Path
) -> float:
    """Return the accuracy, 0-100, on the sounds of a fold."""
    entries = tuple(
        ImageEntry(row["file"], row["file"], "test" if row["fold"] == fold else "train", ())
        for row in rows
    )
    dataset = folder / f"fold{fold}"
    Manifest("sounds", sounds, entries, "", "", {}, media="clips").write(dataset)
    out = folder / f"features{fold}" / recipe
    extract_sound(dataset, out, recipe=recipe)
    features = read_features(out).read([row["file"] for row in rows]).astype(np.float64)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    names = np.array([row["class"] for row in rows])
    tested = np.array([row["fold"] == fold for row in rows])
    nearest = (features[tested] @ features[~tested].T).argmax(axis=1)
    return float(100 * np.mean(names[~tested][nearest] == names[tested]))


def mfcc_seconds(seconds: int = 5, times: int = 20) -> None:
    """Print the CPU milliseconds of MFCC against librosa's, and their difference."""
    rule, sound = Mfcc(), np.random.default_rng(0).normal(0, 0.1, 16_000 * seconds).astype("f4")
    rule(sound)
    started = time.process_time()
    for _ in range(times):
        ours = rule.plain(sound)
    print(f"MFCC of {seconds} s: {1000 * (time.process_time() - started) / times:.2f} ms")
    started = time.process_time()
    try:
        import librosa
    except ImportError:
        print("librosa is not installed")
        return

    def theirs() -> np.ndarray:
        power = librosa.feature.melspectrogram(
            y=sound, sr=rule.rate, n_fft=rule.window, hop_length=rule.hop, n_mels=rule.bands,
            htk=True, norm=None, center=False,
        )  # fmt: skip
        decibels = librosa.power_to_db(power, top_db=None)
        return np.asarray(librosa.feature.mfcc(S=decibels, n_mfcc=rule.coefficients)).T

    found = theirs()
    first = time.process_time() - started
    started = time.process_time()
    for _ in range(times):
        theirs()
    each = 1000 * (time.process_time() - started) / times
    apart = np.abs(found - ours).max()
    print(f"librosa: {each:.2f} ms, {first:.1f} s before; largest difference {apart:.1e}")


def main() -> None:
    """Print one line per recipe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sounds", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--folds", nargs="+", default=["4"])
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    asked = parser.parse_args()
    mfcc_seconds()
    with asked.table.open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    classes = len({row["class"] for row in rows})
    print(f"{len(rows)} sounds of {classes} classes; chance {100 / classes:.1f} %")
    with tempfile.TemporaryDirectory() as folder:
        for recipe in asked.recipes:
            found = [
                right_classes(rows, asked.sounds.resolve(), fold, recipe, Path(folder))
                for fold in asked.folds
            ]
            each = ", ".join(f"{value:.1f}" for value in found)
            print(f"{recipe}: {np.mean(found):.1f} % (folds {', '.join(asked.folds)}: {each})")


if __name__ == "__main__":
    main()
