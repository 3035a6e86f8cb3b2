"""Two systems compared: the paired bootstrap over images and seeds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.retrieval.bootstrap import RankedGallery, image_scores, margins
from pipeline.retrieval.compare import compare
from pipeline.retrieval.embeddings import EmbeddingsError
from pipeline.retrieval.ranking.ranks import image_rows, rank_both_ways
from pipeline.retrieval.recall import recall_table
from tests.retrieval.factories import made, noisy, written


def test_margins_draw_images_and_seeds() -> None:
    rng = np.random.default_rng(1)

    def gallery() -> list[RankedGallery]:
        return [RankedGallery(rng.integers(15, size=6), rng.integers(15, size=6), np.arange(6))]

    def rsum(of: list[RankedGallery], draw: np.ndarray) -> float:
        hits = [
            100.0 * float(np.mean(ranks[draw] < k))
            for ranks in (of[0].image_to_text, of[0].text_to_image)
            for k in (1, 5, 10)
        ]
        return sum(hits)

    first, second = [gallery() for _ in range(3)], [gallery()]
    drawing, seeds = np.random.default_rng(7), np.random.default_rng([7, 1])
    draws = [drawing.integers(6, size=6) for _ in range(50)]
    trainings = seeds.integers(3, size=(50, 3))
    expected = [
        np.mean([rsum(first[k], draw) for k in of]) - rsum(second[0], draw)
        for draw, of in zip(draws, trainings, strict=True)
    ]
    np.testing.assert_allclose(margins(first, second, 50, 7), expected, rtol=1e-12, atol=1e-12)


def test_a_difference_is_decided_where_it_is_beyond_the_draws(tmp_path: Path) -> None:
    good = [written(tmp_path, f"good{k}", noisy(120, 0.5, k)) for k in (1, 2, 3)]
    near = [written(tmp_path, f"near{k}", noisy(120, 0.52, 10 + k)) for k in (1, 2, 3)]
    poor = [written(tmp_path, "poor", noisy(120, 1.5, 4))]

    found = compare(good, poor)
    assert found.decided
    assert found.p == 0.0
    assert found.low < found.margin < found.high
    assert found.first[1] == pytest.approx(recall_table(noisy(120, 0.5, 2))["rsum"])
    assert found.num_images == 120
    other_way = compare(poor, good)
    assert (other_way.margin, other_way.low) == (-found.margin, pytest.approx(-found.high, abs=9))
    assert not compare(good, near).decided
    same = compare(poor, poor)
    assert (same.margin, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)

    other = written(tmp_path, "other", noisy(119, 0.5, 1))
    with pytest.raises(EmbeddingsError, match="119 images that are not the 120"):
        compare(good, [other])


def test_few_images_decide_nothing(tmp_path: Path) -> None:
    """An exact interval and p stand beside the verdict, however far apart the two are."""
    good, poor = noisy(40, 0.1, 1), noisy(40, 9.0, 2)
    files = written(tmp_path, "good", good), written(tmp_path, "poor", poor)
    found = compare([files[0]], [files[1]])
    assert found.margin == pytest.approx(
        recall_table(good)["rsum"] - recall_table(poor)["rsum"], abs=1e-9
    )
    assert 0 < found.p < 0.01
    assert 0 < found.low < found.margin < found.high
    assert (found.decided, found.verdict) == (False, "too few images to decide")
    assert found.num_images == 40
    same = compare([files[0]], [files[0]])
    assert (same.low, same.high, same.p, same.verdict) == (0.0, 0.0, 1.0, "equal on every image")
    two = [written(tmp_path, f"two{noise}", noisy(2, noise, 1)) for noise in (0.1, 9.0)]
    assert compare(two[:1], two[1:]).verdict in ("too few images to decide", "equal on every image")


@pytest.mark.parametrize(
    ("swapped", "differing", "verdict"),
    [(4, 4, "too few images to decide, as 4 of them differ"), (9, 8, "decided")],
)
def test_few_differences_decide_nothing(
    swapped: int, differing: int, verdict: str, tmp_path: Path
) -> None:
    """Four differences of one sign are common by chance, and a bootstrap leaves 0 out."""
    e = noisy(200, 0.01, 1)
    rows = e.caption_embeddings.copy()
    rows[: 2 * swapped] = rows[: 2 * swapped][::-1]
    files = [
        written(tmp_path, name, replace(e, caption_embeddings=of))
        for name, of in (("right", e.caption_embeddings), ("swapped", rows))
    ]
    found = compare(files[:1], files[1:])
    assert (found.differing, found.verdict) == (differing, verdict)
    assert found.low > 0
    assert found.p < 0.05


def test_scores_of_images_add_up_to_rsum() -> None:
    e = made([3, 1, 5, 2, 2, 1], "cosine", integers=True)
    ranks = rank_both_ways(e)
    scores = image_scores(RankedGallery(*ranks, image_rows(e)))
    assert scores.shape == (6,)
    assert scores.mean() == pytest.approx(recall_table(e)["rsum"])
