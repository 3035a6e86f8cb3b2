"""Localizations compared: average precision of drawn photos against copies, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.regions import RegionError
from pipeline.regions.localization.evaluate_localization import tabulate
from pipeline.regions.localization.localized import Localized, write_localized
from pipeline.regions.localization.measures import average_precisions, by_head
from pipeline.studies.claims.compare import compare
from pipeline.studies.claims.drawn_precision import MeanAveragePrecision
from pipeline.studies.significance.paired import figure
from tests.regions.localization.factories import localized


def distinct(found: Localized, seed: int) -> Localized:
    """Give every proposal its own score, since copies of a photo interleave equal ones."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal(found.regions.shape).astype(np.float32)
    return replace(found, regions=rows / np.linalg.norm(rows, axis=1, keepdims=True))


def drawn(found: Localized, times: list[int]) -> Localized:
    """Return a localization that holds each photo as often as it is drawn, as photos of its own."""
    images = [at for at, n in enumerate(times) for _ in range(n)]
    queries = [(q, new) for new, at in enumerate(images) for q in found.queries_of_image[at]]
    regions = [found.regions_of(at) for at in images]
    truths = [found.truth_of(int(q)) for q, _ in queries]
    counts = [r.stop - r.start for r in regions]
    return replace(
        found,
        image_ids=tuple(f"copy {n}" for n in range(len(images))),
        sizes=found.sizes[images],
        first_region=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        boxes=np.concatenate([found.boxes[r] for r in regions]),
        regions=np.concatenate([found.regions[r] for r in regions]),
        query_ids=tuple(f"q{n}" for n in range(len(queries))),
        query_image=np.array([new for _, new in queries]),
        query_phrase=np.array([found.query_phrase[q] for q, _ in queries]),
        query_types=tuple("" for _ in queries),
        first_truth=np.concatenate([[0], np.cumsum([len(t) for t in truths])]),
        truth=np.concatenate(truths),
    )


@pytest.mark.parametrize("seed", range(6))
def test_precision_of_drawn_photos_is_that_of_copies(seed: int) -> None:
    found = distinct(localized(images=7, proposals=12, phrases=5, seed=seed), seed)
    part = MeanAveragePrecision.of(found)
    rng = np.random.default_rng(seed)
    draws = [np.bincount(rng.integers(7, size=7), minlength=7) for _ in range(8)] + [
        np.ones(7, int)
    ]
    for times in draws:
        copies = drawn(found, times.tolist())
        expected = 100 * np.nanmean(average_precisions(copies, by_head(copies)))
        assert part.figures(times[None].astype(float))[0] == pytest.approx(expected, abs=1e-9)


def test_a_photo_without_proposals_and_a_phrase_that_nothing_finds() -> None:
    """Truth far from every proposal: the precision is 0, and no detection is left."""
    found = localized(images=4, seed=1)
    nowhere = replace(found, truth=found.truth + 1000)
    assert MeanAveragePrecision.of(nowhere).figures(np.ones((2, 4))).tolist() == [0, 0]
    one = np.eye(4)
    assert np.isfinite(MeanAveragePrecision.of(found).figures(one)).all()


def written(folder: Path, name: str, found: Localized) -> Path:
    write_localized(folder / name, found)
    return folder / name


def test_figures_are_those_of_the_table(tmp_path: Path) -> None:
    """Of two heads on 60 photos, one of which sees nothing but noise."""
    good = localized(images=60, proposals=8, phrases=3, seed=2)
    noise = distinct(good, 3)
    files = written(tmp_path, "good.h5", good), written(tmp_path, "noise.h5", noise)
    tables = [tabulate(of, "head") for of in (good, noise)]
    for measure in ("phrase_to_region_r1", "phrase_to_region_r5", "phrase_to_region_map",
                    "pointing_game"):  # fmt: skip
        found = compare(*files, measure=measure, resamples=300)
        printed = [table.rows["head"][measure] for table in tables]
        assert [found.first[0], found.second[0]] == pytest.approx(printed, abs=1e-9)
        assert found.num_images == 60
        assert found.low <= found.margin <= found.high
    same = files[0], files[0]
    assert compare(*same, resamples=20).measure == "phrase_to_region_r1"
    assert compare(*same, measure="phrase_to_region_map", resamples=20).differing == 0


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"image_ids": ("i0", "i1", "x", "i3", "i4")}, "other photos .*first 'i2' and 'x'"),
        ({"phrase_texts": ("phrase 0", "a", "b", "c")}, "other phrases .*first of 'i"),
        ({"boxes": "moved"}, "other proposals .*first of 'i0'"),
        ({"truth": "moved"}, "other true boxes .*first of 'i0#p0'"),
    ],
)
def test_what_differs_is_refused_by_name(
    changes: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    found = localized()
    ((name, value),) = changes.items()
    if value == "moved":
        value = getattr(found, name) + np.float32(1)
    other = replace(found, **{name: value})
    files = [written(tmp_path, f"{k}.h5", of) for k, of in enumerate((found, other))]
    with pytest.raises(RegionError, match=fault):
        compare(files[1], files[0])


def test_the_value_is_that_of_all_photos_drawn_once() -> None:
    found = distinct(localized(images=9, seed=4), 4)
    expected = 100 * np.nanmean(average_precisions(found, by_head(found)))
    assert figure([MeanAveragePrecision.of(found)]) == pytest.approx(expected, abs=1e-9)
