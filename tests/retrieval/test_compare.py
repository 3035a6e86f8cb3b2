"""Two systems compared: the paired bootstrap over images and seeds."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.retrieval.bootstrap import RankedGallery, margins
from pipeline.retrieval.compare import compare
from pipeline.retrieval.embeddings import EmbeddingsError
from pipeline.retrieval.recall import recall_table
from tests.retrieval.factories import noisy, written


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
