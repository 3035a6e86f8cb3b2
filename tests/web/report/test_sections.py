"""Runs from several seeds are folded under their experiment."""

from pipeline.web.report.sections import Spread, folded, spreads, system_of


def test_runs_stand_under_their_experiment() -> None:
    names = ["b-seed1", "a", "a-seed2", "b-seed2x", "a-seed1", "c-seed3"]
    assert folded(names) == {
        "b-seed1": ["b-seed1"],
        "a": ["a", "a-seed1", "a-seed2"],
        "b-seed2x": ["b-seed2x"],
        "c-seed3": ["c-seed3"],
    }
    assert system_of("a-seed12") == "a"
    assert system_of("a-seed") == "a-seed"
    assert folded([]) == {}


def test_spreads_are_means_and_sample_deviations() -> None:
    rows = [{"rsum": 1, "r": 5.0}, {"rsum": 2.0, "r": 5.0}, {"rsum": 3.0, "r": 5.0}]
    assert spreads(rows, ["rsum", "r"]) == {"rsum": Spread(2.0, 1.0), "r": Spread(5.0, 0.0)}
