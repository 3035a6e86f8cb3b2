"""Protocols against galleries cut by hand, refusals, and intervals against plain resampling."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import evaluate_protocol
from pipeline.retrieval.ranking.bootstrap import RankedGallery, intervals
from pipeline.retrieval.ranking.galleries import galleries
from pipeline.retrieval.ranking.protocols import PROTOCOLS, Protocol, resolve_protocol
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.ranking.small_galleries import SMALL_COLUMNS
from pipeline.retrieval.tables import (
    COUNTS,
    EXTRA_COLUMNS,
    METRICS,
    markdown_table,
    read_recall,
    write_joint_table,
    write_recall,
)
from pipeline.store.errors import UnknownName
from pipeline.studies.significance.compare import rsum_of
from pipeline.studies.significance.paired import margins
from stages.evaluate import evaluate as command


def made(counts: list[int], seed: int = 0) -> Embeddings:
    """Images with `counts` captions near them; captions in any order, image ids in no order."""
    rng = np.random.default_rng(seed)
    images = [f"im{k}" for k in rng.permutation(len(counts))]
    points = rng.standard_normal((len(counts), 6)).astype(np.float32)
    image_of_caption = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    said = points[image_of_caption] + 1.5 * rng.standard_normal((len(image_of_caption), 6)).astype(
        np.float32
    )
    return Embeddings(
        tuple(images),
        points,
        tuple(f"c{k}" for k in rng.permutation(len(image_of_caption))),
        tuple(images[k] for k in image_of_caption),
        said.astype(np.float32),
        "cosine",
        {},
    )


def of_images(e: Embeddings, images: Sequence[str]) -> Embeddings:
    """Cut a gallery by plain lists."""
    rows = [e.image_ids.index(i) for i in images]
    captions = [k for k, i in enumerate(e.caption_image_ids) if i in images]
    return Embeddings(
        images,
        e.image_embeddings[rows],
        tuple(e.caption_ids[k] for k in captions),
        tuple(e.caption_image_ids[k] for k in captions),
        e.caption_embeddings[captions],
        e.similarity,
        {},
    )


def test_folds_are_consecutive_images_of_the_file_and_figures_their_mean() -> None:
    e = made([6, 5, 7, 5] * 10)
    evaluation = evaluate_protocol(e, Protocol("small", images=8, folds=5))
    folds = [recall_table(of_images(e, e.image_ids[k : k + 8])) for k in range(0, 40, 8)]
    for fold, expected in zip(evaluation.folds, folds, strict=True):
        assert fold | expected == fold
    for name in METRICS:
        expected_mean = sum(fold[name] for fold in folds) / 5
        assert evaluation.table[name] == pytest.approx(expected_mean, rel=1e-14)
    assert [evaluation.table[name] for name in (*COUNTS, "num_folds")] == [40, 200, 5, 5]
    assert evaluation.table["text_to_image_r5_chance"] == pytest.approx(100 * 5 / 8)


def test_median_of_two_folds_may_be_a_half() -> None:
    """In the first fold each caption lies at its image, in the second at the other image."""
    corners = np.eye(2, dtype=np.float32)
    e = Embeddings(
        tuple("abcd"),
        np.concatenate([corners, corners]),
        tuple("1234"),
        tuple("abcd"),
        np.concatenate([corners, corners[::-1]]),
        "cosine",
        {},
    )
    table = evaluate_protocol(e, Protocol("two", images=2, folds=2, captions_per_image=1)).table
    assert table["text_to_image_median_rank"] == 1.5
    assert table["text_to_image_r1"] == 50.0


def test_first_images_and_all() -> None:
    e = made([5, 6, 5, 5, 8, 5])
    first = evaluate_protocol(e, resolve_protocol("first-4")).table
    expected = recall_table(of_images(e, e.image_ids[:4]))
    assert first | expected == first
    everything = evaluate_protocol(e, resolve_protocol("all", captions_per_image=None)).table
    expected = recall_table(e, captions_per_image=None)
    assert everything | expected == everything
    assert everything["num_captions"] == 34
    assert set(everything) == {*METRICS, *COUNTS, *EXTRA_COLUMNS, *SMALL_COLUMNS}
    (same,) = galleries(e, resolve_protocol("first-6", captions_per_image=None))
    assert same is e


def test_uneven_captions_are_welcome_where_the_protocol_says_all() -> None:
    e = made([1, 9, 3, 2])
    assert evaluate_protocol(e, PROTOCOLS["all"]).table["num_captions"] == 11
    assert evaluate_protocol(e, resolve_protocol("first-3", None)).table["num_captions"] == 13
    with pytest.raises(EmbeddingsError, match=rf"5 captions per image, and 2 .*{e.image_ids[0]}"):
        evaluate_protocol(e, resolve_protocol("first-3"))


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("flickr8k", "1000 images, and there are 3; .*use the protocol all$"),
        ("coco-5k", "5000 images, and there are 3"),
        ("coco-1k", r"5000 images \(5 folds of 1000\), and there are 3"),
        ("first-4", "4 images, and there are 3"),
    ],
)
def test_too_few_images_are_refused(protocol: str, message: str) -> None:
    with pytest.raises(EmbeddingsError, match=message):
        evaluate_protocol(made([5, 5, 5]), resolve_protocol(protocol))


def test_too_many_images_are_refused_with_the_remedy() -> None:
    with pytest.raises(EmbeddingsError, match=r"2 images, and there are 3; .* or first-2$"):
        evaluate_protocol(made([5, 5, 5]), Protocol("pair", images=2))


@pytest.mark.parametrize("name", ["", "coco", "first-0", "first-", "first-1e3", "first--1", "ALL"])
def test_unknown_protocols_are_refused(name: str) -> None:
    with pytest.raises(UnknownName, match=r"expected one of all, flickr8k, .* first-1000"):
        resolve_protocol(name)


def test_published_protocols() -> None:
    sizes = {p.name: (p.images, p.folds, p.captions_per_image) for p in PROTOCOLS.values()}
    assert sizes == {
        "all": (None, 1, 5),
        "flickr8k": (1000, 1, 5),
        "flickr30k": (1000, 1, 5),
        "coco-5k": (5000, 1, 5),
        "coco-1k": (1000, 5, 5),
        "msvd": (670, 1, None),
        "trecvid-vtt": (1915, 1, 2),
    }


def test_sets_of_sentences_are_galleries_of_their_own() -> None:
    """Mean inverted rank over sets, by loops: each sentence of a set is before or behind."""
    e = made([2] * 12)
    seen = [e.caption_image_ids[:k].count(image) for k, image in enumerate(e.caption_image_ids)]
    captions = [f"{i}#{1 - k}" for i, k in zip(e.caption_image_ids, seen, strict=True)]
    e = replace(e, caption_ids=tuple(captions))
    evaluation = evaluate_protocol(e, Protocol("two sets", 12, captions_per_image=2, sets=2))
    images = e.image_embeddings / np.linalg.norm(e.image_embeddings, axis=1, keepdims=True)
    texts = e.caption_embeddings / np.linalg.norm(e.caption_embeddings, axis=1, keepdims=True)
    scores = images @ texts.T
    clip_to_text, text_to_clip = [], []
    for number in (0, 1):
        chosen = [k for k in range(24) if captions[k].endswith(f"#{number}")]
        for row, image in enumerate(e.image_ids):
            right = next(k for k in chosen if e.caption_image_ids[k] == image)
            clip_to_text.append(1 / (1 + sum(scores[row, k] > scores[row, right] for k in chosen)))
            before = sum(scores[other, right] > scores[row, right] for other in range(12))
            text_to_clip.append(1 / (1 + before))
    table = evaluation.table
    assert table["image_to_text_mean_inverted_rank"] == pytest.approx(np.mean(clip_to_text))
    assert table["text_to_image_mean_inverted_rank"] == pytest.approx(np.mean(text_to_clip))
    assert [table[n] for n in (*COUNTS, "num_folds")] == [12, 24, 1, 2]
    assert [fold["num_captions"] for fold in evaluation.folds] == [12, 12]
    with pytest.raises(EmbeddingsError, match=r"two sets is of 2 captions .* 1 images have fewer"):
        evaluate_protocol(made([2, 1]), Protocol("two sets", 2, captions_per_image=2, sets=2))
    with pytest.raises(EmbeddingsError, match="1 images have more"):
        evaluate_protocol(made([2, 3]), Protocol("two sets", 2, captions_per_image=2, sets=2))


def test_protocols_of_clips_say_which_captions_count() -> None:
    e = made([40, 3] * 335)
    table = evaluate_protocol(e, resolve_protocol("msvd")).table
    expected = recall_table(e, captions_per_image=None)
    assert table | expected == table
    assert table["num_captions"] == 43 * 335
    with pytest.raises(EmbeddingsError, match=r"msvd counts all captions .* 3 were requested"):
        resolve_protocol("msvd", 3)


def ranked(counts: list[int], seed: int) -> RankedGallery:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    ranks = rng.geometric(0.1, len(counts)) - 1, rng.geometric(0.1, len(rows)) - 1
    return RankedGallery(*ranks, rows)


def plain_intervals(folds: list[RankedGallery], resamples: int) -> dict[str, tuple[float, float]]:
    """Resample with lists of queries, the figures' formulas written out."""
    rng = np.random.default_rng(7)
    figures: dict[str, list[float]] = {}
    for _ in range(resamples):
        means: dict[str, list[float]] = {}
        for fold in folds:
            drawn = rng.integers(len(fold.image_to_text), size=len(fold.image_to_text))
            said = np.concatenate([np.flatnonzero(fold.image_rows == image) for image in drawn])
            for d, found in (
                ("image_to_text", fold.image_to_text[drawn]),
                ("text_to_image", fold.text_to_image[said]),
            ):
                for k in (1, 5, 10):
                    means.setdefault(f"{d}_r{k}", []).append(float(100 * np.mean(found < k)))
                inverted = float(np.mean(1 / (found + 1)))
                means.setdefault(f"{d}_mean_inverted_rank", []).append(inverted)
        for name, values in means.items():
            figures.setdefault(name, []).append(float(np.mean(values)))
        rsum = sum(values[-1] for name, values in figures.items() if "_r1" in name or "_r5" in name)
        figures.setdefault("rsum", []).append(rsum)
    return {name: tuple(np.quantile(v, [0.025, 0.975])) for name, v in figures.items()}


@pytest.mark.parametrize("folds", [1, 2])
def test_intervals_agree_with_plain_resampling(folds: int) -> None:
    galleries = [ranked([1, 4, 5, 7, 2] * 12, seed) for seed in range(folds)]
    ours = intervals(galleries, resamples=4000)
    for name, (low, high) in plain_intervals(galleries, 1000).items():
        close = 0.15 * (high - low)  # two standard errors and a step of discrete figures
        assert ours[f"{name}_low"] == pytest.approx(low, abs=close)
        assert ours[f"{name}_high"] == pytest.approx(high, abs=close)
    assert len(ours) == 2 * 9


def test_intervals_are_seeded_and_shrink_to_the_figure() -> None:
    gallery = ranked([5] * 50, 0)
    assert intervals([gallery]) == intervals([gallery])
    assert intervals([gallery]) != intervals([gallery], seed=1)
    small = RankedGallery(np.array([2]), np.array([0, 7]), np.array([0, 0]))
    bounds = intervals([small], resamples=3)
    assert bounds["image_to_text_mean_inverted_rank_low"] == pytest.approx(1 / 3)
    assert (bounds["text_to_image_r1_low"], bounds["text_to_image_r1_high"]) == (50.0, 50.0)
    assert (bounds["rsum_low"], bounds["rsum_high"]) == (400.0, 400.0)


def test_captions_of_one_image_are_drawn_together() -> None:
    """Five captions that rise and fall together tell no more than one."""
    once = np.arange(60) % 3 * 4
    images = np.zeros(60, np.int64)
    single = intervals([RankedGallery(images, once, np.arange(60))])
    fivefold = intervals([RankedGallery(images, np.repeat(once, 5), np.repeat(np.arange(60), 5))])
    assert fivefold == pytest.approx(single)


def test_provenance_is_json_and_names_the_protocol() -> None:
    evaluation = evaluate_protocol(made([5] * 4), Protocol("small", images=2, folds=2))
    how = json.loads(json.dumps(evaluation.method))
    assert how["protocol"] == {
        "name": "small", "images": 2, "folds": 2, "rest": False, "captions_per_image": 5,
        "sets": 0,
    }  # fmt: skip
    assert how["intervals"]["resamples"] == 1000
    assert not evaluate_protocol(made([5] * 4), PROTOCOLS["all"]).folds


def test_tables_take_the_columns_of_a_protocol(tmp_path: Path) -> None:
    e = made([5] * 20)
    with_extras = evaluate_protocol(e, Protocol("small", images=10, folds=2)).table
    as_json, as_csv = write_recall(tmp_path / "a", with_extras)
    assert read_recall(as_json) == with_extras
    header = [name.strip('"') for name in as_csv.read_text().splitlines()[0].split(",")]
    small = [name for name in SMALL_COLUMNS if name not in EXTRA_COLUMNS]
    assert header == [*METRICS, *COUNTS, *EXTRA_COLUMNS, *small]
    text = markdown_table({"a": with_extras, "b": recall_table(e)})
    lines = text.splitlines()
    low, high = with_extras["rsum_low"], with_extras["rsum_high"]
    assert lines[2].endswith(f" {with_extras['rsum']:.1f} ({low:.1f}–{high:.1f}) |")
    assert lines[3].endswith(f" {recall_table(e)['rsum']:.1f} |")
    assert "bootstrap" in text
    assert [line.split("|")[-2].strip() for line in lines[-4:]] == ["folds", "----:", "2", "–"]
    write_joint_table(tmp_path, {"a": with_extras, "b": recall_table(e)})
    del with_extras["rsum_low"]
    with pytest.raises(EmbeddingsError, match=r"missing columns \['rsum_low'\]"):
        write_recall(tmp_path / "b", with_extras)


def test_the_command_shows_the_printed_rows_of_clips(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "mine.h5", made([1, 3] * 335))
    asked = [str(tmp_path / "mine.h5"), "--protocol", "msvd", "--out", str(tmp_path / "out")]
    ended = CliRunner().invoke(command, asked)
    assert ended.exit_code == 0
    r1 = read_recall(tmp_path / "out" / "recall.json")["image_to_text_r1"]
    assert f"| ours: mine | {r1:.1f} |" in ended.output
    assert "| dong-2018: Word2VisualVec, C3D, Multi-scale | 14.9 |" in ended.output


def test_the_command_adds_nothing_unless_a_protocol_is_named(tmp_path: Path) -> None:
    file, out = tmp_path / "e.h5", tmp_path / "out"
    write_embeddings(file, made([5] * 6))

    def run(*options: str) -> tuple[int, dict[str, float], dict[str, object]]:
        ended = CliRunner().invoke(command, [str(file), "--out", str(out), *options])
        how = json.loads((out / "provenance.json").read_text())
        return ended.exit_code, read_recall(out / "recall.json"), how

    status, table, how = run()
    assert (status, {*table}) == (0, {*METRICS, *COUNTS, *SMALL_COLUMNS})
    assert table | recall_table(made([5] * 6)) == table
    assert list(how) == [
        "captions_per_image",
        "embeddings_sha256",
        "intervals",
        "provenance",
        "similarity",
    ]
    status, table, how = run("--protocol", "first-4", "--captions-per-image", "3")
    assert (status, table["num_images"], table["num_captions"]) == (0, 4, 12)
    assert how["protocol"] == {
        "name": "first-4", "images": 4, "folds": 1, "rest": True, "captions_per_image": 3,
        "sets": 0,
    }  # fmt: skip
    kept = {path: path.read_bytes() for path in out.iterdir()}
    assert run("--protocol", "coco-1k")[0] == 1
    assert {path: path.read_bytes() for path in out.iterdir()} == kept


def test_margins_of_folds_are_of_the_same_draws() -> None:
    """Against a loop that draws images once for both systems, over two folds."""
    rng = np.random.default_rng(5)

    def folds() -> list[RankedGallery]:
        return [
            RankedGallery(rng.integers(20, size=n), rng.integers(20, size=2 * n),
                          np.repeat(np.arange(n), 2))
            for n in (7, 7)
        ]  # fmt: skip

    def rsum(of: RankedGallery, draw: np.ndarray) -> float:
        captions = [c for image in draw for c in np.flatnonzero(of.image_rows == image)]
        return sum(
            100.0 * float(np.mean(ranks < k))
            for ranks in (of.image_to_text[draw], of.text_to_image[captions])
            for k in (1, 5, 10)
        )

    one, other = folds(), folds()
    drawing = np.random.default_rng(3)
    # All draws of the first fold come before those of the second.
    draws = [[drawing.integers(7, size=7) for _ in range(200)] for _ in one]
    expected = [
        np.mean([rsum(a, d) - rsum(b, d) for a, b, d in zip(one, other, of, strict=True)])
        for of in zip(*draws, strict=True)
    ]
    first, second = ([rsum_of(fold) for fold in of] for of in (one, other))
    np.testing.assert_allclose(margins([first], [second], 200, 3), expected, rtol=1e-12, atol=1e-9)
    assert not margins([first], [first], 20).any()
    with pytest.raises(ValueError, match=r"\[7\] and \[7, 7\] images"):
        margins([first], [second[:1]], 20)
