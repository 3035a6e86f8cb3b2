"""Candidates of captions in the order of their score and a head's cosine."""

import hashlib
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import pipeline
from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.language import LanguageError
from pipeline.language.captioning.captions import Caption
from pipeline.language.captioning.captions_file import Described, read_provenance, write_captions
from pipeline.language.captioning.consensus import Training
from pipeline.language.captioning.rerank import rerank_captions
from pipeline.language.score_captions import RankingHead
from tests.project import Recorder

NAME = "wang2016-cca-mean"
COSINES = {"a dog": 0.9, "a cat": 0.1, "a bird": 0.5, "a red ball": 0.2}


def head_of(cosines: dict[str, float]) -> RankingHead:
    """Return a head whose cosines are those of a table."""
    made = SimpleNamespace(
        head=SimpleNamespace(tensors_sha256="0" * 64),
        cosines=lambda images, texts: [[cosines[text] for text in own] for own in texts],
    )
    return cast(RankingHead, made)


def write(folder: Path, images: dict[str, dict[str, float]]) -> Path:
    described = [
        Described(image, tuple(Caption(t, s, {"log_probability": s * 3}) for t, s in own.items()))
        if own
        else Described(image, error="cut short")
        for image, own in images.items()
    ]
    write_captions(folder / "made.jsonl", described, {"seed": 3})
    return folder / "made.jsonl"


def test_the_score_is_the_old_one_and_the_weighted_cosine(tmp_path: Path) -> None:
    images = {
        "b.jpg": {"a cat": -1.0, "a dog": -2.0, "a bird": -1.5},
        "a.jpg": {},
        "c.jpg": {"a red ball": -1.0},
    }
    file, monitor = write(tmp_path, images), Recorder()
    for weight in (0.0, 1.0, 4.0):
        out = tmp_path / f"by-{weight}.jsonl"
        made = rerank_captions([file], out, head=head_of(COSINES), weight=weight, monitor=monitor)
        assert [d.image for d in made] == [*images]
        expected = {t: s + weight * COSINES[t] for t, s in images["b.jpg"].items()}
        order = sorted(expected, key=lambda text: -expected[text])
        assert [c.text for c in made[0].captions] == order
        for caption in made[0].captions:
            old = images["b.jpg"][caption.text]
            assert caption.score == pytest.approx(expected[caption.text])
            assert caption.parts == {
                "log_probability": old * 3, "cosine": COSINES[caption.text], "generated": old,
            }  # fmt: skip
        assert (made[1].error, made[2].text) == ("cut short", "a red ball")
        assert [json.loads(line)["image_id"] for line in out.read_text().splitlines()] == [*images]
        stored = read_provenance(out)
        assert (stored["seed"], stored["reranked"]["weight"]) == (3, weight)
    assert [line.split(", ")[1] for line in (monitor.lines[0], monitor.lines[-1])] == [
        "0 with another caption",
        "1 with another caption",
    ]


def test_candidates_of_several_files_are_pooled(tmp_path: Path) -> None:
    first = write(tmp_path, {"a.jpg": {"a dog": -1.0, "a cat": -2.0}, "b.jpg": {}, "c.jpg": {}})
    folder = tmp_path / "other"
    other = write(folder, {"c.jpg": {}, "b.jpg": {"a bird": -3.0}, "a.jpg": {"a cat": -0.5}})
    out = tmp_path / "by.jsonl"
    made = rerank_captions([first, other], out, head=head_of(COSINES), weight=0)
    found = [(d.image, {c.text: c.score for c in d.captions}, d.error) for d in made]
    assert found == [
        ("a.jpg", {"a cat": -0.5, "a dog": -1.0}, ""),
        ("b.jpg", {"a bird": -3.0}, ""),
        ("c.jpg", {}, "cut short"),
    ]
    stored = read_provenance(out)
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (first, other)]
    assert (stored["reranked"]["captions_sha256"], stored["pooled_with"]) == (hashes, [{"seed": 3}])
    few = write(tmp_path / "few", {"a.jpg": {"a cat": -0.5}})
    with pytest.raises(LanguageError, match=r"2 are in only one of them, first 'b\.jpg'"):
        rerank_captions([first, few], out, head=head_of(COSINES))


def space_of(points: dict[str, list[float]], failed: tuple[str, ...] = ()) -> RankingHead:
    """Return a head with the given points of images, some of which have failed."""
    made = SimpleNamespace(
        head=SimpleNamespace(tensors_sha256="0" * 64),
        cosines=lambda images, texts: [[0.0] * len(own) for own in texts],
        points=lambda images: np.array([points[image] for image in images]),
        with_features=lambda entries: [entry for entry in entries if entry.id not in failed],
    )
    return cast(RankingHead, made)


def entry(image: str, *captions: str) -> ImageEntry:
    return ImageEntry(image, f"{image}.jpg", "train", captions)


def naive_consensus(
    text: str, neighbours: list[tuple[ImageEntry, float]], every: list[ImageEntry]
) -> float:
    """Return the mean cosine of tf-idf vectors over orders and captions, by definition."""

    def grams(words: list[str], n: int) -> list[tuple[str, ...]]:
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    def vector(caption: str, n: int) -> dict[tuple[str, ...], float]:
        found = grams(caption.split(), n)
        return {
            g: found.count(g)
            * math.log(
                len(every)
                / max(1, sum(any(g in grams(c.split(), n) for c in e.captions) for e in every))
            )
            for g in found
        }

    total, counts = 0.0, 0.0
    for caption, count in [(c, count) for e, count in neighbours for c in e.captions]:
        counts += count
        for n in range(1, 5):
            a, b = vector(text, n), vector(caption, n)
            norms = math.hypot(*a.values()) * math.hypot(*b.values()) if a and b else 0
            total += count * sum(a[g] * b.get(g, 0) for g in a) / norms / 4 if norms else 0
    return total / counts


def test_the_consensus_is_the_mean_similarity_to_captions_of_neighbours(tmp_path: Path) -> None:
    entries = [
        entry("near", "a dog runs on the grass", "a dog on the grass"),
        entry("next", "a brown dog runs", "dogs run"),
        entry("far", "a red ball on a table"),
        entry("failed", "a cat sleeps on a bed"),
        entry("b.jpg", "a cat sleeps"),  # is described itself: not its own neighbour
        entry("silent"),
    ]
    points = {"near": [1.0, 0.1], "next": [1.0, 0.5], "far": [-1.0, 1.0], "b.jpg": [1.0, 0.0]}
    texts = ["a cat sleeps", "a dog runs", "a dog", "a red ball", "zebra", "a dog runs a dog runs"]
    file = write(tmp_path, {"b.jpg": dict.fromkeys(texts, -1.0)})
    head = space_of(points, failed=("failed",))
    cosines = {image: x / math.hypot(x, y) for image, (x, y) in points.items()}  # with b.jpg
    for neighbours, weight in ((1, 1.0), (2, 20.0), (9, 0.5)):
        (made,) = rerank_captions(
            [file], tmp_path / "by.jsonl", head=head, weight=3,
            training=Training(PackedEntries.of(entries), weight, neighbours),
        )  # fmt: skip
        for caption in made.captions:
            counted = [(e, math.exp(10 * cosines[e.id])) for e in entries[: min(neighbours, 3)]]
            expected = naive_consensus(caption.text, counted, entries[:3])
            assert caption.parts["consensus"] == pytest.approx(expected, rel=1e-5)
            assert caption.score == pytest.approx(-1 + weight * expected, rel=1e-5)
        assert made.text == ("a dog runs" if neighbours > 1 else made.text)
        stored = read_provenance(tmp_path / "by.jsonl")["reranked"]
        assert (stored["consensus"], stored["neighbours"]) == (weight, neighbours)
    packed = PackedEntries.of(entries)
    alone, wrong = Training(packed[3:], 1.0), Training(packed, 1.0, 0)
    for training, message in (
        (alone, "no other training image with captions"),
        (wrong, "0 neighbours"),
        (Training(packed, float("nan")), "weight of the consensus is nan"),
    ):
        with pytest.raises(LanguageError, match=message):
            rerank_captions([file], tmp_path / "no.jsonl", head=head, training=training)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"image_id": "a", "caption": "a dog", "score": 1}', "one caption per image"),
        ('{"image_id": "a", "caption": "a dog"}', "line 1 is not one of"),
        ('{"image_id": "a", "caption": "a dog", "score": 1, "others": [3]}', "line 1 is not one"),
        ('[{"image_id": "a", "caption": "a dog"}]', "line 1 is not one of"),
    ],
)
def test_files_without_candidates_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "made.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(LanguageError, match=message):
        rerank_captions([file], tmp_path / "out.jsonl", head=head_of(COSINES))
    with pytest.raises(LanguageError, match="weight of the cosine is -1"):
        rerank_captions([file], tmp_path / "out.jsonl", head=head_of(COSINES), weight=-1)


def test_by_a_trained_head(tmp_path: Path) -> None:
    """The cosines are those of the experiment's own embedding file."""
    pipeline.draw_scenes(tmp_path / "mine", 12, seed=0).write(tmp_path / "mine")
    pipeline.run(NAME, tmp_path / "mine", root=tmp_path / "made")
    (file,) = (tmp_path / "made" / "embeddings" / "mine").glob("*.h5")
    space = pipeline.read_embeddings(file)
    texts = {
        c: t
        for entry in pipeline.read_manifest(tmp_path / "mine")
        for c, t in zip(entry.caption_ids, entry.captions, strict=True)
    }
    rows = {
        texts[c]: row for c, row in zip(space.caption_ids, space.caption_embeddings, strict=True)
    }
    images = {image: {"qzqzqzv": 9.0, **dict.fromkeys(rows, 0.0)} for image in space.image_ids}
    options: Any = {"experiment": NAME, "root": tmp_path / "made", "weight": 1.0}
    made = pipeline.rerank(write(tmp_path, images), tmp_path / "mine", **options)
    assert (tmp_path / "made" / "captions" / "mine" / f"made-by-{NAME}.jsonl").is_file()
    for described, image in zip(made, space.image_embeddings, strict=True):
        assert described.text == "qzqzqzv"
        assert described.captions[0].parts["cosine"] == 0  # no known word
        for caption in described.captions[1:]:
            cosine = image @ rows[caption.text] / np.linalg.norm(image)
            cosine /= np.linalg.norm(rows[caption.text])
            assert caption.score == pytest.approx(float(cosine), abs=1e-5)
