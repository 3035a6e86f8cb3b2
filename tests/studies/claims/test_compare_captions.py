"""Captions compared: BLEU of drawn images against copies of them, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.language import LanguageError
from pipeline.language.scores.bleu import bleu
from pipeline.language.scores.table import score
from pipeline.studies import StudyError
from pipeline.studies.claims.compare import compare
from pipeline.studies.claims.compare_captions import MEASURES, read_scored
from pipeline.studies.significance.paired import figure

WORDS = tuple("a the dog cat runs sits on in grass snow red blue two small with".split())  # noqa: SIM905
NUMBER = 60


def sentences(seed: int, number: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 10))) for _ in range(number)]


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    texts = sentences(0, 3 * NUMBER)
    entries = tuple(
        ImageEntry(f"{k}.jpg", f"{k}.jpg", "test", tuple(texts[3 * k : 3 * k + 3]))
        for k in range(NUMBER)
    )
    made = Manifest("mine", tmp_path, entries, "none", "made up", {})
    made.write(tmp_path / "mine")
    return made


def captions_file(folder: Path, name: str, texts: dict[str, str | None]) -> Path:
    lines = [
        {"image_id": image, **({"error": "lost"} if text is None else {"caption": text})}
        for image, text in texts.items()
    ]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / name


@pytest.fixture
def near(manifest: Manifest, tmp_path: Path) -> dict[str, str | None]:
    """A reference with another word at its end, of each image."""
    return {entry.id: f"{entry.captions[0]} ball" for entry in manifest}


def test_figures_are_those_of_the_scores(
    manifest: Manifest, near: dict[str, str | None], tmp_path: Path
) -> None:
    found = read_scored(captions_file(tmp_path, "near.jsonl", near), manifest)
    expected = score(
        {k: v for k, v in near.items() if v}, {entry.id: entry.captions for entry in manifest}
    )
    for measure in MEASURES:
        assert figure(found.parts(measure)) == pytest.approx(expected[measure], rel=1e-12)


def test_bleu_of_drawn_images_is_that_of_copies(
    manifest: Manifest, near: dict[str, str | None], tmp_path: Path
) -> None:
    found = read_scored(captions_file(tmp_path, "near.jsonl", near), manifest)
    times = np.random.default_rng(1).integers(0, 3, size=(4, NUMBER))
    for draw, value in zip(
        times, found.parts("bleu_4")[0].figures(times.astype(float)), strict=True
    ):
        rows = np.repeat(np.arange(NUMBER), draw)
        of_copies = bleu([found.words[k] for k in rows], [found.references[k] for k in rows])
        assert value == pytest.approx(100 * of_copies[3], rel=1e-12)


def test_better_captions_are_found_better(
    manifest: Manifest, near: dict[str, str | None], tmp_path: Path
) -> None:
    """In COCO's array too, whose rows are in another order; without a dataset there is no way."""
    random = dict(zip(near, sentences(5, NUMBER), strict=True))
    first = captions_file(tmp_path, "near.jsonl", near)
    second = tmp_path / "random.json"
    rows = [{"image_id": image, "caption": text} for image, text in reversed(random.items())]
    second.write_text(json.dumps(rows))
    for measure in ("bleu_4", "cider", "rouge_l"):
        found = compare(first, second, measure=measure, dataset=tmp_path / "mine", resamples=500)
        assert found.decided
        assert found.margin > 0
    with pytest.raises(StudyError, match="references are in a dataset"):
        compare(first, second)


def test_what_differs_is_refused_by_name(
    manifest: Manifest, near: dict[str, str | None], tmp_path: Path
) -> None:
    whole = captions_file(tmp_path, "whole.jsonl", near)
    fewer = captions_file(tmp_path, "fewer.jsonl", dict(list(near.items())[:50]))
    silent = captions_file(tmp_path, "silent.jsonl", {**near, "7.jpg": None})
    strange = captions_file(tmp_path, "strange.jsonl", {"x.jpg": "a dog"})
    dataset = tmp_path / "mine"
    for other, fault in (
        (fewer, "60 and 50 images.*first '50.jpg' .no caption in .*fewer.jsonl"),
        (silent, "60 and 59 images.*first '7.jpg'"),
        (strange, "1 image that the dataset 'mine' lacks, first 'x.jpg'"),
    ):
        with pytest.raises(LanguageError, match=fault):
            compare(other, whole, dataset=dataset)
    (tmp_path / "whole.provenance.json").write_text('{"dataset": "theirs"}')
    with pytest.raises(LanguageError, match=r"dataset 'theirs', but the references .*'mine'"):
        compare(fewer, whole, dataset=dataset)
