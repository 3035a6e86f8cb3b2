"""Captions of a split: every image has its line, and a killed run ends in the same bytes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import write_features
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.heads.inputs.feature_rows import Features
from pipeline.language import LanguageError
from pipeline.language.captioning.baselines import MostFrequentCaption
from pipeline.language.captioning.captions import Caption
from pipeline.language.captioning.captions_file import read_captions
from pipeline.language.captioning.describe import describe_split
from pipeline.language.score_captions import evaluate_captions, markdown
from pipeline.studies.scenes.draw_scenes import scene_of
from pipeline.studies.scenes.drawn_truth import drawn_truth
from pipeline.studies.scenes.grammar import describe

IMAGES = [f"scene-{k:05d}" for k in range(120)]


class Sums:
    """Describes an image by the sum of its features, and may be killed."""

    def __init__(self, calls: int = 99) -> None:
        self.provenance: Mapping[str, Any] = {"captioner": "sums"}
        self._calls = calls

    def describe(
        self, images: Features, *, count: int = 5, seed: int = 0
    ) -> list[tuple[Caption, ...]]:
        if not self._calls:
            raise KeyboardInterrupt
        self._calls -= 1
        return [
            tuple(Caption(f"a {total} {k} {seed}", total / 3) for k in range(count))
            for total in images.sum(axis=1).tolist()
        ]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """120 scenes that are not drawn, with their captions; the features of the last one failed."""
    entries = []
    for image in IMAGES:
        scene = scene_of(image, seed=1)
        assert scene is not None
        texts = describe(scene, np.random.default_rng(0))
        entries.append(ImageEntry(image, f"{image}.png", "test", texts))
    entries.append(ImageEntry("old", "old.png", "train", ("A star.", "a star", "Two fish.")))
    manifest = Manifest("scenes", tmp_path, tuple(entries), "none", "test", {"seed": 1})
    manifest.write(tmp_path / "data")
    rows = np.arange(480, dtype=np.float32).reshape(120, 4)
    status, errors = [0] * 119 + [1], [""] * 119 + ["cut short"]
    write_features(
        tmp_path / "features", IMAGES, rows, recipe={"name": "mine"}, status=status, errors=errors
    )
    return tmp_path / "data"


def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(dataset: Path, tmp_path: Path) -> None:
    def run(out: str, captioner: Sums, seed: int = 0) -> bytes:
        path = tmp_path / out
        describe_split(captioner, dataset, path, images=tmp_path / "features", count=2, seed=seed)
        return path.read_bytes()

    whole = run("a/x.jsonl", Sums())
    found = read_captions(tmp_path / "a/x.jsonl")
    assert list(found) == IMAGES
    assert [image for image, text in found.items() if text is None] == IMAGES[-1:]
    assert whole.endswith(b'{"error":"cut short","image_id":"scene-00119"}\n')
    with pytest.raises(KeyboardInterrupt):
        run("b/x.jsonl", Sums(calls=2))
    assert not (tmp_path / "b/x.jsonl").exists()
    assert run("b/x.jsonl", Sums(calls=1)) == whole
    with pytest.raises(KeyboardInterrupt):
        run("c/x.jsonl", Sums(calls=2))
    # Work of another seed is not taken.
    assert run("c/x.jsonl", Sums(), seed=1) != whole
    assert {p.name for p in (tmp_path / "b").iterdir()} == {"x.jsonl", "x.provenance.json"}


def test_scenes_have_a_truth(dataset: Path, tmp_path: Path) -> None:
    """The most frequent caption is parsed, and true of few; a person's caption is true."""
    manifest = read_manifest(dataset)
    truth = drawn_truth(manifest)
    (train,) = (e for e in manifest.entries if e.split == "train")
    constant = MostFrequentCaption([train])
    out = tmp_path / "out" / "constant.jsonl"
    describe_split(constant, dataset, out, images=tmp_path / "features", limit=60)
    row = evaluate_captions(out, dataset, tmp_path / "scores", truth=truth)
    assert set(read_captions(out).values()) == {"A star."}
    assert row["parsed"] == 100
    assert row["true"] < 20
    assert (row["distinct"], row["verbatim"], row["num_images"]) == (100 / 60, 100, 60)
    own = {e.id: e.first_caption for e in manifest.entries if e.split == "test"}
    lines = [f'{{"image_id": "{image}", "caption": "{text}"}}\n' for image, text in own.items()]
    (tmp_path / "own.jsonl").write_text("".join(lines))
    row = evaluate_captions(tmp_path / "own.jsonl", dataset, tmp_path / "scores", truth=truth)
    assert (row["parsed"], row["true"]) == (100, 100)
    assert row["bleu_4"] == pytest.approx(100)
    assert "| own | 100.00 |" in markdown({"own": row})
    (tmp_path / "own.jsonl").write_text('{"image_id": "x", "caption": "a star"}\n')
    with pytest.raises(LanguageError, match="first \\['x'\\]"):
        evaluate_captions(tmp_path / "own.jsonl", dataset, tmp_path / "scores")
