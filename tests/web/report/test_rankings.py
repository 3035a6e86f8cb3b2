"""Rankings of the papers' systems against pairs counted by hand."""

import pytest

from pipeline.retrieval.measures import CUTOFFS, DIRECTIONS
from pipeline.web.report.rankings import rankings

COLUMNS = [f"{d}_r{k}" for d in DIRECTIONS for k in CUTOFFS]
# Wang 2016, table 1, Fisher vectors: sums of the six R@K.
LINEAR = "wang2016-linear-one-directional"  # 297.7
BIDIRECTIONAL = "wang2016-linear-bidirectional"  # 314.2
NONLINEAR = "wang2016-nonlinear-one-directional"  # 316.6


def _recall(value: float) -> dict[str, float]:
    return dict.fromkeys(COLUMNS, value)


def test_places_and_pairs() -> None:
    recalls = {LINEAR: _recall(30), BIDIRECTIONAL: _recall(40), NONLINEAR: _recall(20)}
    (ranking,) = rankings({**recalls, "ours": _recall(99)}, "scenes")
    assert ranking.paper == "wang-2016"
    assert list(ranking.places.items()) == [(BIDIRECTIONAL, 1), (LINEAR, 2), (NONLINEAR, 3)]
    assert ranking.figures[BIDIRECTIONAL] == 240
    assert ranking.measure.startswith("sum of i→t R@1, i→t R@5")
    (printed,) = ranking.published
    assert printed.heading.startswith("flickr30k, table 1, VGG-19")
    assert printed.places == {LINEAR: 3, BIDIRECTIONAL: 2, NONLINEAR: 1}
    assert printed.figures[LINEAR] == pytest.approx(297.7)
    assert (printed.agreeing, printed.pairs) == (1, 3)  # linear < bidirectional


def test_a_paper_that_prints_fewer_columns_and_a_tie_of_ours() -> None:
    """Dong 2018 has sentences of an image alone, over four networks, on the dataset itself."""
    names = ("dong2018-w2vv-bow", "dong2018-w2vv-gru")
    (ranking,) = rankings({name: _recall(10) for name in names}, "flickr8k")
    assert ranking.measure == "sum of i→t R@1, i→t R@5, i→t R@10"
    assert set(ranking.places.values()) == {1}
    assert len(ranking.published) == 4
    assert all(printed.heading.startswith("flickr8k") for printed in ranking.published)
    assert [printed.agreeing for printed in ranking.published] == [0] * 4
    (elsewhere,) = rankings({name: _recall(10) for name in names}, "scenes")
    assert len(elsewhere.published) == 8


def test_one_system_has_no_ranking() -> None:
    assert rankings({"kiros2014-lstm": _recall(1), LINEAR: _recall(2)}, "flickr8k") == ()
    assert rankings({}, "flickr8k") == ()
