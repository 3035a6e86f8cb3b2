"""Linear probes of embeddings that hold an answer, hold it late, or do not hold it."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from pipeline.studies.probes.linear import FEWEST, linear_probes

Facts = list[dict[tuple[str, str], str]]


def split(number: int, seed: int) -> tuple[np.ndarray, Facts]:
    """One axis with the count, one that is small with presence, and noise of 20 axes."""
    rng = np.random.default_rng(seed)
    present, count = rng.integers(2, size=number), rng.integers(1, 4, size=number)
    rows = rng.normal(size=(number, 22))
    rows[:, 0] = 8.0 * count
    rows[:, 1] = 0.3 * present + rng.normal(scale=0.02, size=number)
    facts: Facts = [
        {("presence", "dog"): "yes" if p else "no", ("count", "dogs"): str(c)}
        for p, c in zip(present.tolist(), count.tolist(), strict=True)
    ]
    for row in range(0, number, 2):
        facts[row]["relation", "left of"] = "yes" if rng.random() < 0.5 else "no"
    return rows, facts


def test_what_is_held_is_answered_and_what_is_not_is_chance() -> None:
    (train, own), (test, others) = split(500, 0), split(400, 1)
    presence, count, relation = linear_probes(train, own, test, others)
    assert (presence.kind, presence.question) == ("presence", "dog")
    assert (presence.answers, count.answers) == (("no", "yes"), ("1", "2", "3"))
    assert (presence.train, presence.test, relation.train, relation.test) == (500, 400, 250, 200)
    # Presence is the component with the least variance, the count that with the most.
    assert presence.auc["all"] > 99
    assert presence.auc["16"] < 60
    # A linear function ranks the least and the most, and not what is between: 100, 50 and 100.
    assert count.auc["4"] == pytest.approx(250 / 3, abs=4)
    assert 40 < relation.auc["all"] < 60


def test_the_area_is_that_of_ranks() -> None:
    """A ridge regression on one column keeps its order: the area is Mann and Whitney's."""
    (train, own), (test, others) = split(300, 2), split(200, 3)
    train[:, 1] += 0.2 * train[:, 2]
    test[:, 1] += 0.2 * test[:, 2]
    found, *_ = linear_probes(train[:, 1:2], own, test[:, 1:2], others)
    present = np.array([facts["presence", "dog"] == "yes" for facts in others])
    yes, no = test[present, 1], test[~present, 1]
    area = 100 * mannwhitneyu(yes, no).statistic / len(yes) / len(no)
    assert 70 < area < 95
    assert found.auc == {"all": pytest.approx(area)}


def test_questions_without_two_answers_of_enough_images_are_left_out() -> None:
    (train, own), (test, others) = split(60, 0), split(40, 1)
    for facts in own:
        facts["presence", "cat"] = "no"
    for row in range(FEWEST - 1):
        own[row]["presence", "cow"] = others[row]["presence", "cow"] = "yes"
        own[-1 - row]["presence", "cow"] = others[-1 - row]["presence", "cow"] = "no"
    names = {q.question for q in linear_probes(train, own, test, others)}
    assert names == {"dog", "dogs", "left of"}


def test_points_that_are_all_alike_answer_nothing() -> None:
    (_, own), (_, others) = split(60, 0), split(40, 1)
    alike, same = np.ones((60, 5)), np.ones((40, 5))
    assert {q.auc["all"] for q in linear_probes(alike, own, same, others)} == {50.0}
