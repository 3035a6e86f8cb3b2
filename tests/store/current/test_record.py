"""The one rule of what is up to date: the first difference between a record and its expectation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import write_features
from pipeline.store.current.readers import features_record, json_record
from pipeline.store.current.record import MISSING, stale
from pipeline.store.files import write_json

RECORD: dict[str, Any] = {
    "seed": 0, "settings": {"dim": 8, "rates": [1, 2]}, "made_from": {"images": "0" * 64},
    "parts": [{"kind": "bow"}, {"kind": "mean"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({}, ""),
        ({"seed": 0, "settings": {"dim": 8, "rates": (1, 2)}}, ""),
        ({"seed": 1}, "seed is 0, expected 1"),
        ({"seed": 0, "head": None}, "head is missing, expected null"),
        ({"settings": {"dim": 9, "rates": [1]}}, "settings.dim is 8, expected 9"),
        ({"parts": [{"kind": "bow"}, {"kind": "tags"}]}, "parts.1.kind is mean, expected tags"),
        ({"parts": [{"kind": "bow"}]}, 'parts.1 is {"kind": "mean"}, expected missing'),
        ({"parts": []}, 'parts is [{"kind": "bow"}, {"kind…, expected []'),
        ({"settings": {"dim": 8}}, "settings.rates is [1, 2], expected missing"),
        (
            {"made_from": {"images": "1" * 64}},
            f"made_from.images is {'0' * 24}…, expected {'1' * 24}…",
        ),
    ],
)
def test_the_first_difference_is_named(
    expected: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    write_json(tmp_path / "head.json", RECORD)
    assert stale(tmp_path / "head.json", json_record, lambda: expected) == reason


def test_missing_and_damaged_outputs(tmp_path: Path) -> None:
    def expected() -> dict[str, Any]:
        raise AssertionError("what does not exist is compared with nothing")

    assert stale(tmp_path / "head.json", json_record, expected) == MISSING
    assert stale(tmp_path / "features", features_record, expected) == MISSING
    for text in ("{", "[]", '{"seed": NaN}'):
        (tmp_path / "head.json").write_text(text)
        assert "head.json is corrupt" in stale(tmp_path / "head.json", json_record, expected)
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "index.json").write_text("{}")
    assert "index.json" in stale(tmp_path / "features", features_record, expected)


def test_features_are_known_by_recipe_rows_and_weights(tmp_path: Path) -> None:
    rows = np.ones((3, 2), np.float32)
    write_features(tmp_path / "f", ["a", "b", "c"], rows, recipe={"name": "mine"}, weights="w")

    def reason(**expected: Any) -> str:
        return stale(tmp_path / "f", features_record, lambda: expected)

    assert reason(rows=3, recipe={"name": "mine"}, weights="w") == ""
    assert reason(rows=4) == "rows is 3, expected 4"
    assert reason(recipe={"name": "yours"}) == "recipe.name is mine, expected yours"
    assert reason(weights="v") == "weights is w, expected v"
