"""The usual names of splits, and what is refused."""

from pathlib import Path

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.splits import Role, split_for


def dataset(*splits: str) -> Manifest:
    entries = [ImageEntry(f"{s}.jpg", f"{s}.jpg", s, ("a caption",)) for s in splits]
    return Manifest("made", Path("images"), tuple(entries), licence="", source="", notes={})


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (("train", "val", "test"), ("train", "val", "test")),
        (("train", "dev"), ("train", "dev", "dev")),
        (("train", "restval", "val", "test"), ("train", "val", "test")),
        (("train", "validation", "test"), ("train", "validation", "test")),
    ],
)
def test_usual_names(there: tuple[str, ...], expected: tuple[str, ...]) -> None:
    roles: tuple[Role, ...] = ("train", "validation", "test")
    assert tuple(split_for(role, dataset(*there)) for role in roles) == expected


def test_a_named_split_comes_first() -> None:
    assert split_for("train", dataset("train", "extra"), "extra") == "extra"


def test_a_split_that_is_not_there() -> None:
    there = dataset("train", "held-out")
    with pytest.raises(DatasetError, match=r"no split 'x' for train; it has train, held-out"):
        split_for("train", there, "x")
    with pytest.raises(DatasetError, match=r"no split 'val' or 'dev' .* for validation"):
        split_for("validation", there)
