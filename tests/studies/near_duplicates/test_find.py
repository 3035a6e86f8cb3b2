"""Near-duplicates: against a naive loop over all pairs, in any order, from any number of rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.recipes import RECIPES
from pipeline.store.builder.arrays import write_features
from pipeline.store.errors import WrongUsage
from pipeline.store.shards.feature_set import FeatureSet, MissingRows
from pipeline.store.shards.format import UNREADABLE
from pipeline.studies import StudyError
from pipeline.studies.near_duplicates import groups as groups_module
from pipeline.studies.near_duplicates import pairs as pairs_module
from pipeline.studies.near_duplicates.find import THRESHOLDS, Duplicates, duplicates
from pipeline.studies.near_duplicates.pairs import exact_pairs
from pipeline.studies.near_duplicates.parts import parts_of_sets

RECIPE = {"name": "other"}
THRESHOLD = 0.9

Found = list[tuple[float, list[tuple[str, str, float]]]]


def rows_with_copies(rows: int, seed: int = 0, dim: int = 24) -> np.ndarray:
    """Return rows of which a third are near others, two are equal and one is zero."""
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(rows, dim)).astype(np.float32)
    for row in range(0, rows - 1, 3):
        made[row + 1] = made[row] * 2 + 0.4 * rng.normal(size=dim)
    if rows > 8:
        made[7], made[8] = made[2], 0
    return made


def names(rows: int) -> list[str]:
    return [f"{row:03d}.jpg" for row in range(rows)]


def written(folder: Path, ids: Sequence[str], rows: np.ndarray, failed: Sequence[str] = ()) -> Path:
    """Write a feature set in which some rows are marked as failed."""
    rows = rows.copy()
    status = [UNREADABLE if row_id in failed else 0 for row_id in ids]
    rows[np.array(status) != 0] = np.nan
    errors = ["damaged" if code else "" for code in status]
    write_features(folder, list(ids), rows, recipe=RECIPE, status=status, errors=errors)
    return folder


def naive(ids: Sequence[str], rows: np.ndarray, sides: Sequence[object] | None = None) -> Found:
    """Return all groups by two loops over Python numbers, in the order of `Duplicates`.

    sides : of each row; rows of one side are not compared. None: all are.
    """
    wide = rows.astype(np.float64)
    partners: dict[str, list[tuple[float, str]]] = {}
    for i in range(len(ids)):
        for j in range(len(ids)):
            if i == j or (sides is not None and sides[i] == sides[j]):
                continue
            norms = float(np.linalg.norm(wide[i]) * np.linalg.norm(wide[j]))
            cosine = float(wide[i] @ wide[j]) / norms if norms else 0.0
            if cosine >= THRESHOLD:
                partners.setdefault(ids[i], []).append((-cosine, ids[j]))
    groups: Found = []
    remaining = set(partners)
    while remaining:
        group, reached = set(), [min(remaining)]
        while reached:
            group.add(row_id := reached.pop())
            reached += [other for _, other in partners[row_id] if other not in group]
        remaining -= group
        # Equal rows are equally near, whatever rounding makes of it.
        nearest = {row_id: min((round(s, 5), other) for s, other in partners[row_id])
                   for row_id in group}  # fmt: skip
        images = [(row_id, nearest[row_id][1], -nearest[row_id][0]) for row_id in sorted(group)]
        groups.append((max(score for *_, score in images), images))
    return sorted(groups, key=lambda group: (-group[0], group[1][0][0]))


def found_in(result: Duplicates) -> Found:
    return [
        (round(group.score, 5), [(i.id, i.nearest, round(i.score, 5)) for i in group.images])
        for group in result
    ]


def assert_same(result: Duplicates, expected: Found) -> None:
    found = found_in(result)
    assert [[i[:2] for i in images] for _, images in found] == [
        [i[:2] for i in images] for _, images in expected
    ]
    scores = [[i[2] for i in images] for _, images in found]
    for row, other in zip(scores, ([i[2] for i in g] for _, g in expected), strict=True):
        np.testing.assert_allclose(row, other, atol=2e-5)


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("kind", ["vectors", "grids", "with failures"])
def test_groups_are_those_of_a_naive_loop(kind: str, approximate: bool, tmp_path: Path) -> None:
    """Grids are compared by their mean; failed rows match nothing and are counted."""
    ids, rows = names(70), rows_with_copies(70)
    stored, failed = rows, ids[3:13] if kind == "with failures" else []
    if kind == "grids":
        shifts = np.random.default_rng(0).normal(size=(70, 3, 2, 24)).astype(np.float32)
        stored = rows[:, None, None] + shifts - shifts.mean(axis=(1, 2), keepdims=True)
    written(tmp_path / "a", ids, stored, failed)
    result = duplicates(tmp_path / "a", threshold=THRESHOLD, approximate=approximate)
    kept = [row for row, row_id in enumerate(ids) if row_id not in failed]
    expected = naive([ids[row] for row in kept], rows[kept])
    assert len(expected) > 10
    assert_same(result, expected)
    assert (result.compared, result.failed) == (len(kept), len(failed))
    assert result.recall == (1.0 if approximate else None)


@pytest.mark.parametrize("approximate", [False, True])
def test_two_sets_are_compared_with_each_other_alone(approximate: bool, tmp_path: Path) -> None:
    ids, rows = names(60), rows_with_copies(60, seed=1)
    written(tmp_path / "a", ids[:31], rows[:31])
    written(tmp_path / "b", ids[31:], rows[31:])
    rows_b = np.concatenate((rows[31:], rows[:5]))
    written(tmp_path / "c", [f"x{i}" for i in ids[31:] + ids[:5]], rows_b)
    near = duplicates(tmp_path / "a", tmp_path / "b", threshold=THRESHOLD, approximate=approximate)
    assert_same(near, naive(ids, rows, [row < 31 for row in range(60)]))
    near = duplicates(tmp_path / "a", tmp_path / "c", threshold=THRESHOLD, approximate=approximate)
    found = {frozenset(image.id for image in group.images) for group in near}
    assert found >= {frozenset({"000.jpg", "001.jpg", "x000.jpg", "x001.jpg"})}
    assert {image.features.name for image in near.images} == {"a", "c"}


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("approximate", [False, True])
def test_few_rows_and_none(rows: int, approximate: bool, tmp_path: Path) -> None:
    ids = names(rows + 2)
    failed = ids[rows:]
    made = np.ones((rows + 2, 4), np.float32)
    written(tmp_path / "a", ids, made, failed)
    result = duplicates(tmp_path / "a", threshold=1.0, approximate=approximate)
    assert (result.compared, result.failed) == (rows, 2)
    expected = [[*ids[:2]]] if rows == 2 else []
    assert [[image.id for image in group.images] for group in result] == expected
    written(tmp_path / "b", ["other.jpg"], made[:1])
    between = duplicates(tmp_path / "a", tmp_path / "b", threshold=1.0, approximate=approximate)
    assert len(between.images) == (rows + 1 if rows else 0)


def test_the_order_of_rows_and_the_size_of_blocks_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, rows = names(50), rows_with_copies(50)
    written(tmp_path / "a", ids, rows)
    result = duplicates(tmp_path / "a", threshold=THRESHOLD)
    order = np.random.default_rng(3).permutation(50)
    written(tmp_path / "b", [ids[row] for row in order], rows[order])
    # Pairs are joined after every few, too.
    monkeypatch.setattr(groups_module, "_BUFFERED_PAIRS", 3)
    shuffled = duplicates(tmp_path / "b", threshold=THRESHOLD)

    def without_folder(found: Duplicates) -> list[list[tuple[str, str, float]]]:
        return [[(i.id, i.nearest, i.score) for i in group.images] for group in found]

    assert without_folder(shuffled) == without_folder(result)

    def pairs(block_rows: int) -> set[tuple[int, int, float]]:
        parts = parts_of_sets([FeatureSet(tmp_path / "a")])
        found = exact_pairs(parts, THRESHOLD, between=False, block_rows=block_rows)
        listed = [
            pair
            for some in found
            for pair in zip(some.first.tolist(), some.second.tolist(), some.scores.tolist(),
                            strict=True)
        ]  # fmt: skip
        assert len(listed) == len(set(listed))
        return set(listed)

    assert pairs(1) == pairs(7) == pairs(49) == pairs(50)


def test_hundreds_of_equal_rows_are_one_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs_module, "_PAIRS_AT_ONCE", 10_000)
    monkeypatch.setattr(groups_module, "_BUFFERED_PAIRS", 10_000)
    rows = np.ones((400, 4), np.float32)
    rows[::100] = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    written(tmp_path / "a", [f"{row:04d}" for row in range(400)], rows)
    (group,) = duplicates(tmp_path / "a", threshold=THRESHOLD)
    assert len(group.images) == 396
    assert {image.nearest for image in group.images} == {"0001", "0002"}
    assert {image.score for image in group.images} == {1.0}


def dataset_of(ids: Sequence[str]) -> Manifest:
    """Return a dataset whose images are in train, val and test in turn."""
    splits = ("train", "val", "test")
    entries = [ImageEntry(i, i, splits[at % 3], ()) for at, i in enumerate(ids)]
    return Manifest("mine", Path("photos"), entries, "CC0", "drawn", {})


def test_splits_and_what_lies_between_them(tmp_path: Path) -> None:
    ids, rows = names(60), rows_with_copies(60)
    rows[5], rows[11] = rows[2], rows[1]
    written(tmp_path / "a", ids, rows)
    manifest = dataset_of(ids)
    split = {entry.id: entry.split for entry in manifest}

    def expected(splits: Sequence[str], between: bool) -> Found:
        kept = [row for row, row_id in enumerate(ids) if split[row_id] in splits]
        sides = [split[ids[row]] for row in kept] if between else None
        return naive([ids[row] for row in kept], rows[kept], sides)

    for splits, between in (
        (["test"], False), (["train", "test"], False), (["train", "test"], True),
        (["train", "val", "test"], True),
    ):  # fmt: skip
        asked = () if len(splits) == 3 else splits
        for approximate in (False, True):
            result = duplicates(
                tmp_path / "a", dataset=manifest, splits=asked, between=between,
                threshold=THRESHOLD, approximate=approximate,
            )  # fmt: skip
            assert_same(result, expected(splits, between))
            assert all(image.split == split[image.id] for image in result.images)
    assert duplicates(tmp_path / "a", dataset=manifest, threshold=0.9).images[0].split


@pytest.mark.parametrize(
    ("error", "text", "wrong"),
    [
        (WrongUsage, "`threshold=0` is not a cosine", {"threshold": 0.0}),
        (WrongUsage, "`threshold=1.5` is not a cosine", {"threshold": 1.5}),
        (WrongUsage, "`threshold=nan`", {"threshold": float("nan")}),
        (WrongUsage, "is specified twice", {"others": "b/../a"}),
        (WrongUsage, "need `dataset=", {"between": True}),
        (WrongUsage, "need `dataset=", {"splits": "test"}),
        (WrongUsage, "compared as a whole", {"others": "b", "between": True}),
        (
            WrongUsage,
            "there is one: test",
            {"dataset": dataset_of(names(7)), "splits": ["test"], "between": True},
        ),
        (StudyError, "cosines are meaningless", {"others": "b"}),
        (MissingRows, "has no rows for 1 of", {"dataset": dataset_of(names(8)), "splits": "val"}),
        (StudyError, "no threshold is calibrated for 'other'", {"threshold": None}),
    ],
)
def test_what_cannot_be_compared_is_refused(
    error: type[Exception],
    text: str,
    wrong: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ids, rows = names(7), rows_with_copies(7)
    written(Path("a"), ids, rows)
    write_features("b", ids, rows, recipe={"name": "another"})
    with pytest.raises(error, match=text):
        duplicates("a", **{"threshold": 0.5, **wrong})


def test_thresholds_are_those_of_recipes_with_their_own_weights() -> None:
    assert set(THRESHOLDS) <= set(RECIPES)
    assert all(0 < threshold < 1 for threshold in THRESHOLDS.values())
