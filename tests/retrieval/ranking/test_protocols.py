"""Every protocol against loops over galleries cut by hand; intervals against plain resampling."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings, write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import evaluate_protocol
from pipeline.retrieval.measures import COUNTS, METRICS, PROTOCOL_COLUMNS, SMALL_COLUMNS
from pipeline.retrieval.ranking.bootstrap import RankedGallery, intervals
from pipeline.retrieval.ranking.galleries import galleries
from pipeline.retrieval.ranking.protocols import PROTOCOLS, Protocol, resolve_protocol
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.ranking.small_galleries import table_of_gallery, warning_of
from pipeline.retrieval.tables import (
    markdown_table,
    read_recall,
    write_joint_table,
    write_recall,
)
from pipeline.store.errors import UnknownName
from stages.evaluate import evaluate as command
from tests.retrieval.factories import made, naive_table, noisy

FIVE = range(5)
Part = tuple[Sequence[str], Any]  # the images of a gallery, and the numbers of their captions
CASES: dict[str, tuple[Protocol, list[int], Callable[[Sequence[str]], list[Part]]]] = {
    "all": (PROTOCOLS["all"], [6, 5, 1, 7, 0, 5], lambda ids: [(ids, FIVE)]),
    "first": (resolve_protocol("first-4", 2), [2, 3, 4, 2, 1, 0], lambda ids: [(ids[:4], (0, 1))]),
    "every caption": (
        resolve_protocol("all", captions_per_image=None), [9, 1, 2, 3], lambda ids: [(ids, None)]
    ),
    "folds": (
        Protocol("folds", images=8, folds=5), [6, 5, 7, 5] * 10,
        lambda ids: [(ids[k : k + 8], FIVE) for k in range(0, 40, 8)],
    ),
    "sets": (
        Protocol("sets", 12, captions_per_image=2, sets=2), [2] * 12,
        lambda ids: [(ids, (0,)), (ids, (1,))],
    ),
}  # fmt: skip
"""A protocol, the captions of each image, and its galleries cut from the image ids."""


@pytest.mark.parametrize(
    ("similarity", "store"),
    [("cosine", "float32"), ("cosine", "int8"), ("cosine", "binary"), ("euclidean", "int8"),
     ("order", "float16"), ("dot", "float32"), ("scan-t2i-avg", "float32")],
)  # fmt: skip
@pytest.mark.parametrize("case", CASES)
def test_figures_are_those_of_loops_over_galleries(
    case: str, similarity: str, store: Any, tmp_path: Path
) -> None:
    """The mean over galleries of each figure, of rows as they are stored; ties by id."""
    protocol, counts, parts_of = CASES[case]
    write_embeddings(tmp_path / "e.h5", made(counts, similarity, integers=True), store=store)
    e = read_embeddings(tmp_path / "e.h5")
    evaluation = evaluate_protocol(e, protocol)
    parts = parts_of(e.image_ids)
    tables = [naive_table(e, *part) for part in parts]
    for fold, expected in zip(evaluation.folds, tables, strict=len(parts) > 1):
        assert fold == pytest.approx(fold | expected, rel=1e-12)
    expected = {name: float(np.mean([t[name] for t in tables])) for name in tables[0]}
    images = len({image for of, _ in parts for image in of})
    expected |= {"num_images": images, "num_captions": sum(t["num_captions"] for t in tables)}
    for k in (1, 5, 10):
        levels = [100 * min(1, k / len(of)) for of, _ in parts]
        expected[f"text_to_image_r{k}_chance"] = float(np.mean(levels))
    table = evaluation.table
    assert table == pytest.approx(table | expected, rel=1e-12)
    assert table["num_folds"] == len(parts) == max(1, len(evaluation.folds))
    assert {*table} == {*METRICS, *COUNTS, *PROTOCOL_COLUMNS, *SMALL_COLUMNS}
    assert all(table[f"{name}_low"] <= table[f"{name}_high"] for name in ("rsum", *METRICS[:3]))
    how = json.loads(json.dumps(evaluation.method))
    assert Protocol(**how["protocol"]) == protocol
    assert how["intervals"]["resamples"] == 1000


def test_median_of_two_folds_may_be_a_half() -> None:
    """In the first fold each caption lies at its image, in the second at the other image."""
    corners = np.eye(2, dtype=np.float32)
    images, captions = np.concatenate([corners] * 2), np.concatenate([corners, corners[::-1]])
    e = Embeddings([*"abcd"], images, [*"1234"], [*"abcd"], captions, "cosine", {})
    table = evaluate_protocol(e, Protocol("two", images=2, folds=2, captions_per_image=1)).table
    assert table["text_to_image_median_rank"] == 1.5
    assert table["text_to_image_r1"] == 50.0


def test_a_gallery_of_everything_is_not_copied() -> None:
    e = made([5, 6, 5, 5, 8, 5], "cosine")
    (same,) = galleries(e, resolve_protocol("first-6", captions_per_image=None))
    assert same is e


TWO_SETS = Protocol("two sets", 2, captions_per_image=2, sets=2)


@pytest.mark.parametrize(
    ("protocol", "counts", "message"),
    [
        ("flickr8k", [5] * 3, "1000 images, but there are 3; .*use the protocol all$"),
        ("coco-5k", [5] * 3, "5000 images, but there are 3"),
        ("coco-1k", [5] * 3, r"5000 images \(5 folds of 1000\), but there are 3"),
        ("first-4", [5] * 3, "4 images, but there are 3"),
        (Protocol("pair", images=2), [5] * 3, r"2 images, but there are 3; .* or first-2$"),
        ("first-3", [1, 9, 3, 2], "5 captions per image, but 2 images have fewer, first .'im"),
        (TWO_SETS, [2, 1], "two sets requires 2 captions .* 1 images have fewer"),
        (TWO_SETS, [2, 3], "1 images have more"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    protocol: str | Protocol, counts: list[int], message: str
) -> None:
    if isinstance(protocol, str):
        protocol = resolve_protocol(protocol)
    with pytest.raises(EmbeddingsError, match=message):
        evaluate_protocol(made(counts, "cosine"), protocol)


@pytest.mark.parametrize("name", ["", "coco", "first-0", "first-", "first-1e3", "first--1", "ALL"])
def test_unknown_protocols_are_refused(name: str) -> None:
    with pytest.raises(UnknownName, match=r"expected one of all, flickr8k, .* first-1000"):
        resolve_protocol(name)


def test_published_protocols() -> None:
    sizes = {p.name: (p.images, p.folds, p.captions_per_image, p.sets) for p in PROTOCOLS.values()}
    assert sizes == {
        "all": (None, 1, 5, 0),
        "flickr8k": (1000, 1, 5, 0),
        "flickr30k": (1000, 1, 5, 0),
        "coco-5k": (5000, 1, 5, 0),
        "coco-1k": (1000, 5, 5, 0),
        "msvd": (670, 1, None, 0),
        "trecvid-vtt": (1915, 1, 2, 2),
    }
    # Protocols of clips define which captions count.
    assert resolve_protocol("msvd", 5).captions_per_image is None
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


@pytest.mark.parametrize(("images", "words"), [(6, "cannot rank systems"), (120, "are few")])
def test_a_small_gallery_says_what_chance_is(images: int, words: str) -> None:
    e = noisy(images, 0.5, 0)
    table = table_of_gallery(e)
    assert {*table} == {*recall_table(e), *SMALL_COLUMNS}
    assert table["rsum_low"] <= table["rsum"] <= table["rsum_high"]
    text = markdown_table({"a": table, "b": table})
    rows = [line for line in text.splitlines() if line.startswith("| chance ")]
    assert [row.split("|")[-2].strip() for row in rows] == [f"{table['rsum_chance']:.1f}"]
    (warning,) = (line for line in text.splitlines() if line.startswith("Warning: "))
    assert warning.startswith(f"Warning: {images} test images {words}")
    assert warning == warning_of([table])
    assert f"{(table['rsum_high'] - table['rsum_low']) / 2:.1f} " in warning


def test_other_galleries_have_chances_of_their_own() -> None:
    one, other = (table_of_gallery(noisy(images, 0.5, 0)) for images in (6, 350))
    text = markdown_table({"a": one, "b": other, "c": other})
    assert [line.split("|")[1].strip() for line in text.splitlines() if "chance (" in line] == [
        "chance (a)",
        "chance (b)",
    ]
    assert warning_of([other]) == ""
    assert warning_of([recall_table(noisy(6, 0.5, 0))]) == ""  # an older table
    assert table_of_gallery(noisy(1000, 0.5, 0)) == recall_table(noisy(1000, 0.5, 0))


def test_tables_take_the_columns_of_a_protocol(tmp_path: Path) -> None:
    e = made([5] * 20, "cosine")
    with_extras = evaluate_protocol(e, Protocol("small", images=10, folds=2)).table
    as_json, as_csv = write_recall(tmp_path / "a", with_extras)
    assert read_recall(as_json) == with_extras
    header = [name.strip('"') for name in as_csv.read_text().splitlines()[0].split(",")]
    small = [name for name in SMALL_COLUMNS if name not in PROTOCOL_COLUMNS]
    assert header == [*METRICS, *COUNTS, *PROTOCOL_COLUMNS, *small]
    text = markdown_table({"a": with_extras, "b": recall_table(e)})
    lines = text.splitlines()
    low, high = with_extras["rsum_low"], with_extras["rsum_high"]
    assert lines[2].endswith(f" {with_extras['rsum']:.1f} ({low:.1f}–{high:.1f}) |")
    assert lines[3].endswith(f" {recall_table(e)['rsum']:.1f} |")
    assert "bootstrap" in text
    assert [line.split("|")[-2].strip() for line in lines[-4:]] == ["folds", "----:", "2", "–"]
    write_joint_table(tmp_path, {"a": with_extras, "b": recall_table(e)})
    for name in ("rsum_low", "rsum_chance", "text_to_image_mean_rank_chance"):
        rest = {key: value for key, value in with_extras.items() if key != name}
        with pytest.raises(EmbeddingsError, match=rf"missing columns \['{name}'\]"):
            write_recall(tmp_path / "b", rest)


def test_the_command_shows_the_printed_rows_of_clips(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "mine.h5", made([1, 3] * 335, "cosine"))
    out = tmp_path / "out"
    asked = [str(tmp_path / "mine.h5"), "--protocol", "msvd", "--out", str(out)]
    ended = CliRunner().invoke(command, asked)
    assert ended.exit_code == 0
    table = read_recall(out / "recall.json")
    assert table["num_captions"] == 4 * 335
    assert f"| ours: mine | {table['image_to_text_r1']:.1f} |" in ended.output
    assert "| dong-2018: Word2VisualVec, C3D, Multi-scale | 14.9 |" in ended.output
    # A protocol that the file does not fit leaves an earlier table as it is.
    kept = {path: path.read_bytes() for path in out.iterdir()}
    refused = CliRunner().invoke(command, [*asked, "--protocol", "coco-1k"])
    assert refused.exit_code == 1
    assert {path: path.read_bytes() for path in out.iterdir()} == kept
