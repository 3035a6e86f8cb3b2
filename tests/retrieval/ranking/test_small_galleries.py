"""Chance, intervals and the warning of small galleries, against random orders and by hand."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.ranking.recall import CUTOFFS, DIRECTIONS, chance_ranks, recall_table
from pipeline.retrieval.ranking.small_galleries import (
    CHANCE_COLUMNS,
    SMALL_COLUMNS,
    chance_columns,
    warning_of,
)
from pipeline.retrieval.tables import markdown_table, write_recall
from tests.retrieval.factories import made, noisy, written


def random_table(counts: list[int], draws: int) -> dict[str, float]:
    """Return the mean figures of random embeddings of a gallery."""
    tables = [recall_table(made(counts, "cosine", seed), None) for seed in range(draws)]
    return {name: float(np.mean([t[name] for t in tables])) for name in tables[0]}


@pytest.mark.parametrize(
    ("counts", "draws"), [([1], 1), ([1, 1], 600), ([5] * 7, 600), ([1, 4, 2, 9, 3], 600)]
)
def test_chance_is_what_random_embeddings_find(counts: list[int], draws: int) -> None:
    expected = random_table(counts, draws)
    found = chance_columns(made(counts, "cosine"))
    assert {*found} == {*CHANCE_COLUMNS}
    for name in [
        f"{d}_{m}" for d in DIRECTIONS for m in (*(f"r{k}" for k in CUTOFFS), "mean_rank")
    ]:
        # Ranks of one draw depend on each other, so that its mean varies more than that of as many.
        assert found[f"{name}_chance"] == pytest.approx(expected[name], rel=0.08), name
    assert found["rsum_chance"] == pytest.approx(expected["rsum"], rel=0.03)


def test_median_ranks_of_chance_are_those_of_one_query() -> None:
    """Against the share of random orders in which the best of the right items comes so early."""
    rng = np.random.default_rng(0)
    counts = [1, 1, 2, 6]
    owner = np.repeat(np.arange(4), counts)
    ranks = [
        1 + int(np.flatnonzero(rng.permutation(owner) == image)[0])
        for _ in range(4000)
        for image in range(4)
    ]
    found = chance_ranks(made(counts, "cosine"))
    assert found["image_to_text_median_rank"] == np.median(ranks)
    for images, median in ((1, 1), (2, 1), (3, 2), (4, 2), (999, 500)):
        of = chance_ranks(made([1] * images, "cosine"))
        assert of["text_to_image_median_rank"] == of["image_to_text_median_rank"] == median


def evaluated(e: Embeddings, tmp_path: Path) -> dict[str, float | int]:
    return evaluate(written(tmp_path, "e", e), tmp_path / "out").table


def test_a_thousand_images_have_the_table_that_they_had(tmp_path: Path) -> None:
    e = noisy(1000, 0.5, 0)
    assert evaluated(e, tmp_path) == recall_table(e)
    assert "chance" not in markdown_table({"a": recall_table(e)})


@pytest.mark.parametrize(("images", "words"), [(6, "cannot rank systems"), (120, "are few")])
def test_a_small_gallery_says_what_chance_is(images: int, words: str, tmp_path: Path) -> None:
    table = evaluated(noisy(images, 0.5, 0), tmp_path)
    assert {*table} == {*recall_table(noisy(images, 0.5, 0)), *SMALL_COLUMNS}
    assert table["rsum_low"] <= table["rsum"] <= table["rsum_high"]
    text = markdown_table({"a": table, "b": table})
    rows = [line for line in text.splitlines() if line.startswith("| chance ")]
    assert [row.split("|")[-2].strip() for row in rows] == [f"{table['rsum_chance']:.1f}"]
    (warning,) = (line for line in text.splitlines() if line.startswith("Warning: "))
    assert warning.startswith(f"Warning: {images} test images {words}")
    assert warning == warning_of([table])
    assert f"{(table['rsum_high'] - table['rsum_low']) / 2:.1f} " in warning


def test_other_galleries_have_chances_of_their_own(tmp_path: Path) -> None:
    one, other = (evaluated(noisy(images, 0.5, 0), tmp_path) for images in (6, 350))
    text = markdown_table({"a": one, "b": other, "c": other})
    assert [line.split("|")[1].strip() for line in text.splitlines() if "chance (" in line] == [
        "chance (a)",
        "chance (b)",
    ]
    assert warning_of([other]) == ""
    assert warning_of([recall_table(noisy(6, 0.5, 0))]) == ""  # an older table


def test_columns_are_there_all_or_none(tmp_path: Path) -> None:
    table = evaluated(noisy(6, 0.5, 0), tmp_path)
    for name in ("rsum_chance", "rsum_low", "text_to_image_mean_rank_chance"):
        rest = {key: value for key, value in table.items() if key != name}
        with pytest.raises(EmbeddingsError, match=rf"missing columns \['{name}'\]"):
            write_recall(tmp_path / "bad", rest)
