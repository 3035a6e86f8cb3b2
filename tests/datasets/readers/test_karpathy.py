"""Karpathy's split files: ids, restval, known counts, and every fault named with its entry."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.karpathy import Restval, _known_counts, read_karpathy


def document() -> dict[str, Any]:
    def image(number: int, split: str, *captions: str) -> dict[str, Any]:
        return {
            "filename": f"{number}.jpg",
            "filepath": "val2014",
            "cocoid": number,
            "imgid": 0,
            "split": split,
            "sentences": [{"raw": c, "tokens": c.split()} for c in captions],
        }

    images = [
        image(8, "test", *"abcdefg"),
        image(5, "restval", "a dog\n"),
        image(6, "train", "x", "x"),
    ]
    return {"dataset": "small", "images": images}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "val2014").mkdir()
    for number in (8, 5, 6):
        (tmp_path / "val2014" / f"{number}.jpg").touch()
    (tmp_path / "6.jpg").touch()
    return tmp_path


def read(root: Path, value: Any, **options: Any) -> Any:
    (root / "dataset_small.json").write_text(json.dumps(value))
    return read_karpathy(root, root / "dataset_small.json", **options)


def test_reads_all_captions_in_file_order(root: Path) -> None:
    manifest = read(root, document())
    assert [(e.id, e.file, e.split, e.captions) for e in manifest.entries] == [
        ("8", "val2014/8.jpg", "test", tuple("abcdefg")),
        ("5", "val2014/5.jpg", "train", ("a dog",)),
        ("6", "val2014/6.jpg", "train", ("x", "x")),
    ]
    assert manifest.name == "small"
    assert manifest.notes["restval_merged"] == 1


def test_id_and_file_without_cocoid_and_filepath(root: Path) -> None:
    value = document()
    value["images"] = value["images"][2:]
    del value["images"][0]["cocoid"], value["images"][0]["filepath"]
    (entry,) = read(root, value).entries
    assert (entry.id, entry.file) == ("6.jpg", "6.jpg")


@pytest.mark.parametrize(
    ("restval", "counts", "coco"),
    [
        ("train", {"test": 1, "train": 2}, {"train": 113_287, "val": 5000, "test": 5000}),
        ("leave-out", {"test": 1, "train": 1}, {"train": 82_783, "val": 5000, "test": 5000}),
        (
            "keep",
            {"test": 1, "restval": 1, "train": 1},
            {"train": 82_783, "restval": 30_504, "val": 5000, "test": 5000},
        ),
    ],
)
def test_restval(root: Path, restval: Restval, counts: dict[str, int], coco: Any) -> None:
    manifest = read(root, document(), restval=restval)
    assert manifest.counts == counts
    assert (manifest.notes.get("restval_left_out") == 1) == (restval == "leave-out")
    assert _known_counts("coco", restval) == coco


def test_known_counts_are_asserted_unless_others_are_stated(root: Path) -> None:
    value = document() | {"dataset": "flickr30k"}
    with pytest.raises(DatasetError, match="train: 2 found, 29000 expected; val: 0 found, 1014"):
        read(root, value)
    assert read(root, value, expect={"train": 2, "val": 0, "test": 1}).name == "flickr30k"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda i: i[1].__setitem__("cocoid", 8),
            r"images\[1\]: duplicate image id '8'.*\[0\]",
        ),
        (lambda i: i[1].__setitem__("sentences", []), r"images\[1\]: `sentences` is empty"),
        (
            lambda i: i[1]["sentences"][0].pop("raw"),
            r"images\[1\]\.sentences\[0\]: .*required field `raw`",
        ),
        (
            lambda i: i[0].__setitem__("split", "a b"),
            r"images\[0\]: split 'a b' is not a plain name",
        ),
        (lambda i: i[0].pop("split"), r"images\[0\]: .*required field `split`"),
        (
            lambda i: i[2].__setitem__("filename", 6),
            r"images\[2\]\.filename: Expected `str`, got `int`",
        ),
        (lambda i: i[2].__setitem__("filepath", ".."), r"images\[2\]: .*leaves the image root"),
        (lambda i: i[2].__setitem__("filename", "7.jpg"), r"images\[2\]: .*not found below"),
        (lambda i: i[2].__setitem__("filename", "x" * 300), r"images\[2\]: .*cannot be accessed"),
    ],
)
def test_faults(root: Path, change: Callable[[list[Any]], Any], message: str) -> None:
    value = document()
    change(value["images"])
    with pytest.raises(DatasetError, match=message):
        read(root, value)
