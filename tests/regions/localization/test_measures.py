"""Recall, suppression and average precision against naive loops, with ties."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.regions import RegionError
from pipeline.regions.boxes import iou
from pipeline.regions.localization.evaluate_localization import (
    evaluate_localized,
    markdown,
    tabulate,
)
from pipeline.regions.localization.localized import Localized, read_localized, write_localized
from pipeline.regions.localization.measures import (
    NO_HIT,
    average_precisions,
    by_area,
    by_head,
    rank,
    suppressed,
)
from tests.regions.localization.factories import localized, random_boxes


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Count pixels, since corners are whole."""
    cells = [
        {(x, y) for x in range(int(c[0]), int(c[2])) for y in range(int(c[1]), int(c[3]))}
        for c in (a, b)
    ]
    return len(cells[0] & cells[1]) / len(cells[0] | cells[1])


def in_order(found: Localized, image: int, phrase: int) -> list[tuple[float, int]]:
    """Return (score, number) of an image's proposals, best first, ties by their number."""
    rows = found.regions[found.regions_of(image)].astype(float)
    scores = [float(found.scores(image, found.phrases[[phrase]])[k, 0]) for k in range(len(rows))]
    return sorted(((s, k) for k, s in enumerate(scores)), key=lambda item: (-item[0], item[1]))


@pytest.mark.parametrize("seed", range(5))
def test_recall_equals_naive_loops_with_ties(seed: int) -> None:
    found = localized(seed=seed)
    ranked = rank(found, by_head(found))
    for query in range(len(found.query_ids)):
        image = int(found.query_image[query])
        boxes, truth = found.boxes[found.regions_of(image)], found.truth_of(query)
        order = in_order(found, image, int(found.query_phrase[query]))
        first = next(
            (
                place
                for place, (_, k) in enumerate(order)
                if max(overlap(boxes[k], t) for t in truth) >= 0.5
            ),
            NO_HIT,
        )
        assert ranked.first_hit[query] == first
        assert ranked.best[query] == (order[0][1] if order else -1)
        if order:
            centre = (boxes[order[0][1]][:2] + boxes[order[0][1]][2:]) / 2
            inside = [(t[:2] <= centre).all() and (centre < t[2:]).all() for t in truth]
            assert ranked.pointed[query] == any(inside)
    assert len(np.unique([s for s, _ in in_order(found, 0, 0)])) < 9


def naive_average_precision(found: Localized, phrase: int, threshold: float) -> float:
    """One list over all images that ask for the phrase; each true box is found once."""
    entries, truths = [], 0
    for image in range(len(found.image_ids)):
        queries = [
            q
            for q in range(len(found.query_ids))
            if (found.query_image[q], found.query_phrase[q]) == (image, phrase)
        ]
        truth = sorted({tuple(map(float, t)) for q in queries for t in found.truth_of(q)})
        truths += len(truth)
        if not queries:
            continue
        boxes = found.boxes[found.regions_of(image)]
        kept: list[tuple[float, int]] = []
        for score, k in in_order(found, image, phrase):
            if all(overlap(boxes[k], boxes[other]) <= threshold for _, other in kept):
                kept.append((score, k))
        done: set[int] = set()
        for score, k in kept:
            overlaps = [overlap(boxes[k], np.array(t)) for t in truth]
            nearest = int(np.argmax(overlaps))
            right = overlaps[nearest] >= 0.5 and nearest not in done
            done |= {nearest} if overlaps[nearest] >= 0.5 else set()
            entries.append((score, right))
    entries.sort(key=lambda entry: -entry[0])
    precisions, number = [], 0
    for place, (_, right) in enumerate(entries, 1):
        number += right
        precisions.append(number / place)
    area = 0.0
    for place, (_, right) in enumerate(entries):
        if right:
            area += max(precisions[place:]) / truths
    return area


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_average_precision_equals_naive_loops(seed: int, threshold: float) -> None:
    found = localized(seed=seed, phrases=3, several=seed % 2 == 0)
    values = average_precisions(found, by_head(found), threshold)
    for phrase in range(3):
        expected = naive_average_precision(found, phrase, threshold)
        assert values[phrase] == pytest.approx(expected, abs=1e-12)
    assert threshold == 0.0 or np.nanmax(values) > 0


@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.3, 1.0])
@pytest.mark.parametrize("number", [0, 1, 2, 30])
def test_suppression_with_ties_is_greedy(number: int, threshold: float) -> None:
    rng = np.random.default_rng(3)
    boxes, scores = random_boxes(rng, number), rng.integers(0, 5, (number, 4)).astype(float)
    order = np.argsort(-scores, axis=0, kind="stable")
    overlaps = iou(boxes, boxes)
    kept = suppressed(overlaps > threshold, order)
    for column in range(4):
        expected: list[int] = []
        for row in order[:, column].tolist():
            if all(overlaps[row, other] <= threshold for other in expected):
                expected.append(row)
        assert order[kept[:, column], column].tolist() == expected


def test_tables_count_what_cannot_be_found(tmp_path: Path) -> None:
    found = localized(images=6, seed=1)
    write_localized(tmp_path / "a.h5", found)
    again = tmp_path / "b.h5"
    write_localized(again, read_localized(tmp_path / "a.h5"))
    assert again.read_bytes() == (tmp_path / "a.h5").read_bytes()
    table = evaluate_localized(tmp_path / "a.h5", tmp_path / "out")
    own, without = table.rows["made"], table.counts["queries_without_proposals"]
    assert table.counts["images_without_proposals"] == 1
    assert without == int((found.query_image == 1).sum()) > 0
    assert own["bound"] <= 100 * (1 - without / len(found.query_ids)) + 1e-9
    recalls = [own[f"phrase_to_region_r{k}"] for k in (1, 5, 10)]
    assert [*recalls, own["bound"]] == sorted([*recalls, own["bound"]])
    assert own["bound"] == table.rows["largest box"]["bound"]
    low, high = own["phrase_to_region_r5_low"], own["phrase_to_region_r5_high"]
    assert low <= own["phrase_to_region_r5"] <= high
    assert table.types["other"]["queries"] == len(found.query_ids)
    assert table.types["people"]["queries"] == 6
    assert "| Wang | 1.0 |" in markdown(table, {"Wang": {"phrase_to_region_r1": "1.0"}})


def test_the_largest_box_is_a_rule(tmp_path: Path) -> None:
    found = localized(images=1, seed=2)
    boxes = found.boxes
    largest = int(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).argmax())
    assert set(rank(found, by_area(found)).best.tolist()) == {largest}
    assert tabulate(found, "x").rows["whole image"]["bound"] <= 100


def test_a_query_without_a_true_box_is_refused(tmp_path: Path) -> None:
    found = localized()
    firsts = found.first_truth.copy()
    firsts[1] = 0
    write_localized(tmp_path / "a.h5", replace(found, first_truth=firsts))
    with pytest.raises(RegionError, match="query 'i0#p0' has no true box"):
        read_localized(tmp_path / "a.h5")


@pytest.mark.parametrize("name", ["images/first_region", "queries/image", "queries/phrase"])
def test_row_numbers_out_of_range_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    for change in (lambda rows: rows + 99, lambda rows: -rows - 1):
        write_localized(path, localized())
        with h5py.File(path, "r+") as file:
            file[name][:] = change(file[name][:])
        with pytest.raises(RegionError, match=r"a\.h5 is damaged"):
            read_localized(path)
