"""Scores of single captions against ratings: read, correlated, and refused by name."""

import json
import warnings
from collections import Counter
from functools import reduce
from itertools import combinations
from math import log
from operator import or_
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.language import LanguageError
from pipeline.studies.judgments import caption_scores, correlate
from stages.language.score import score as command

TEXTS = {
    "a.jpg": ("a dog runs through the snow", "the brown dog is running in snow"),
    "b.jpg": ("two children play on a beach", "kids at the sea"),
    "c.jpg": ("a man rides a red bicycle", "someone on a bike in the street"),
}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    entries = tuple(ImageEntry(name, name, "test", texts) for name, texts in TEXTS.items())
    Manifest("made", tmp_path, entries, "CC0", "drawn", {}).write(tmp_path / "data")
    return tmp_path / "data"


def rated(folder: Path, seed: int = 0) -> tuple[Path, list[dict[str, object]]]:
    """Write captions that begin like a reference, with one to three ratings each."""
    rng = np.random.default_rng(seed)
    words = " ".join(text for texts in TEXTS.values() for text in texts).split()
    lines: list[dict[str, object]] = []
    for n in range(30):
        start = TEXTS[[*TEXTS][n % 3]][n % 2].split()[: rng.integers(0, 7)]
        caption = " ".join([*start, *rng.choice(words, rng.integers(1, 5))])
        ratings: object = rng.integers(1, 5, rng.integers(1, 4)).tolist() if n % 2 else 2.5
        lines.append({"image_id": [*TEXTS][n % 3], "caption": caption, "rating": ratings})
    (folder / "rated.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "rated.jsonl", lines


def taus(x: list[float], y: list[float]) -> tuple[float, float]:
    """Return Kendall's tau-b and Stuart's tau-c by their definitions."""
    signs = [
        (np.sign(a - c), np.sign(b - d))
        for (a, b), (c, d) in combinations(zip(x, y, strict=True), 2)
    ]
    both = sum(p * q for p, q in signs)
    b = both / np.sqrt(sum(p != 0 for p, _ in signs) * sum(q != 0 for _, q in signs))
    least = min(len(set(x)), len(set(y)))
    return b, 2 * both * least / (len(x) ** 2 * (least - 1))


def ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[k:] for k in range(n)), strict=False))


def bleu_2(caption: list[str], references: list[list[str]]) -> float:
    """Return BLEU-2 of one caption by its definition."""
    shares = 1.0
    for n in (1, 2):
        most = reduce(or_, (ngrams(words, n) for words in references))
        shares *= (ngrams(caption, n) & most).total() / max(1, len(caption) + 1 - n)
    near = min((abs(len(words) - len(caption)), len(words)) for words in references)[1]
    return float(np.sqrt(shares) * min(1, np.exp(1 - near / len(caption))))


def cider(captions: list[list[str]], references: list[list[list[str]]]) -> list[float]:
    """Return each caption's CIDEr-D by its definition; the references of each are a document."""
    totals = np.zeros(len(captions))
    for n in (1, 2, 3, 4):
        seen = Counter(g for texts in references for g in {g for t in texts for g in ngrams(t, n)})
        weight = {g: log(len(captions) / number) for g, number in seen.items()}
        for row, (caption, texts) in enumerate(zip(captions, references, strict=True)):
            one = {
                g: tf * weight.get(g, log(len(captions))) for g, tf in ngrams(caption, n).items()
            }
            for text in texts:
                other = {g: tf * weight[g] for g, tf in ngrams(text, n).items()}
                dot = sum(min(one.get(g, 0), value) * value for g, value in other.items())
                norms = np.linalg.norm([*one.values()]) * np.linalg.norm([*other.values()])
                penalty = np.exp(-((len(caption) - len(text)) ** 2) / 72)
                totals[row] += dot / (norms or 1) * penalty / len(texts)
    return [*map(float, 10 * totals / 4)]


def test_each_rating_is_a_pair_of_its_own(tmp_path: Path, dataset: Path) -> None:
    file, lines = rated(tmp_path)
    found = correlate(file, dataset, tmp_path / "out")
    assert [*found] == ["bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "cider"]
    captions = [str(line["caption"]).split() for line in lines]
    references = [[t.split() for t in TEXTS[str(line["image_id"])]] for line in lines]
    scores = caption_scores(captions, references)
    assert scores["bleu_2"] == pytest.approx([*map(bleu_2, captions, references)], abs=1e-6)
    assert scores["cider"] == pytest.approx(cider(captions, references))
    for name, values in scores.items():
        pairs = [
            (value, rating)
            for value, line in zip(values, lines, strict=True)
            for rating in np.atleast_1d(np.array(line["rating"])).tolist()
        ]
        x, y = map(list, zip(*pairs, strict=True))
        assert (found[name]["tau_b"], found[name]["tau_c"]) == pytest.approx(taus(x, y), abs=1e-12)
    stored = json.loads((tmp_path / "out" / "correlations.json").read_text())
    assert (stored["correlations"], stored["num_captions"]) == (found, 30)


def test_the_command_prints_a_table(tmp_path: Path, dataset: Path) -> None:
    file, _ = rated(tmp_path)
    asked = ["--dataset", str(dataset), "--out", str(tmp_path / "out"), "--judgments", str(file)]
    shown = CliRunner().invoke(command, asked)
    assert shown.exit_code == 0, shown.output
    assert "| CIDEr | " in shown.output
    assert (tmp_path / "out" / "rated" / "correlations.json").is_file()
    refused = CliRunner().invoke(command, [*asked, "captions.jsonl"])
    assert refused.exit_code != 0


def test_equal_ratings_have_no_correlation(tmp_path: Path, dataset: Path) -> None:
    line = {"image_id": "a.jpg", "caption": "a dog", "rating": [1, 1]}
    (tmp_path / "same.jsonl").write_text(json.dumps(line))
    found = correlate(tmp_path / "same.jsonl", dataset, tmp_path / "out")
    assert found["cider"] == {"tau_b": None, "tau_c": None}
    (tmp_path / "one.jsonl").write_text(json.dumps({**line, "caption": "", "rating": 1}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert correlate(tmp_path / "one.jsonl", dataset, tmp_path / "out") == found


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"image_id": "x.jpg", "caption": "a dog", "rating": 1}', "first .'x.jpg'"),
        ('{"image_id": "a.jpg", "caption": "a dog"}', "line 1.*rating"),
        ('{"image_id": "a.jpg", "caption": "a dog", "rating": []}', "line 1 has the ratings"),
        ("", "has no rated caption"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, dataset: Path, line: str, fault: str
) -> None:
    (tmp_path / "bad.jsonl").write_text(line)
    with pytest.raises(LanguageError, match=fault):
        correlate(tmp_path / "bad.jsonl", dataset, tmp_path / "out")
    with pytest.raises(LanguageError, match="No such file"):
        correlate(tmp_path / "none.jsonl", dataset, tmp_path / "out")
