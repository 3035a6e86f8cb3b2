"""COCO's caption files: what is read from them, and every fault named with its entry."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.coco import read_coco
from tests.project import SHARED

_DATA = SHARED / "data" / "coco-sample"


def document() -> dict[str, Any]:
    return {
        "licenses": [{"id": 4, "name": "BY", "url": "u"}, {"id": 5, "name": "BY-SA"}],
        "images": [
            {"id": 9, "file_name": "9.jpg", "license": 4},
            {"id": 3, "file_name": "3.jpg", "license": 5},
            {"id": 4, "file_name": "4.jpg"},
        ],
        "annotations": [
            {"id": 7, "image_id": 3, "caption": "three, first"},
            {"id": 1, "image_id": 9, "caption": "nine\n"},
            {"id": 2, "image_id": 3, "caption": "three,\nsecond"},
            {"id": 8, "image_id": 4, "caption": "four"},
        ],
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("9", "3", "4"):
        (tmp_path / f"{name}.jpg").touch()
    return tmp_path


def read(root: Path, value: Any) -> Any:
    (root / "c.json").write_text(json.dumps(value))
    return read_coco(root, [("val", root / "c.json")])


def test_reads_images_and_captions_in_file_order(root: Path) -> None:
    manifest = read(root, document())
    assert [(e.id, e.file, e.split, e.captions) for e in manifest.entries] == [
        ("9", "9.jpg", "val", ("nine",)),
        ("3", "3.jpg", "val", ("three, first", "three, second")),
        ("4", "4.jpg", "val", ("four",)),
    ]
    assert manifest.licence == "BY (u): 1 images; BY-SA: 1 images; not stated: 1 images"
    assert manifest.notes["captions_with_blanks_cut_or_lines_joined"] == 2


def test_several_files_and_folders(root: Path) -> None:
    first, second = document(), document()
    second["images"] = [{"id": 10, "file_name": "10.jpg"}]
    second["annotations"] = [{"id": 1, "image_id": 10, "caption": "ten"}]
    (root / "a.json").write_text(json.dumps(first))
    (root / "b.json").write_text(json.dumps(second))
    (root / "train2017").mkdir()
    (root / "train2017" / "10.jpg").touch()
    pairs = [("val", root / "a.json"), ("train", root / "b.json")]
    manifest = read_coco(root, pairs, folders={"train": "train2017"}, expect={"train": 1})
    assert manifest.counts == {"val": 3, "train": 1}
    assert manifest.entries[3].file == "train2017/10.jpg"
    with pytest.raises(DatasetError, match=r"\['test'\].*no caption file"):
        read_coco(root, pairs, folders={"test": "x"})
    with pytest.raises(DatasetError, match=r"images\[0\]: image id '9', first in .*a.json"):
        read_coco(root, [*pairs, ("test", root / "a.json")], folders={"train": "train2017"})
    with pytest.raises(DatasetError, match="train: 1 found, 2 expected"):
        read_coco(root, pairs, folders={"train": "train2017"}, expect={"train": 2})


def _set(part: str, index: int, key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda d: d[part][index].__setitem__(key, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("images", 1, "id", 9), r"c.json: images\[1\]: duplicate image id '9'.*images\[0\]"),
        (
            _set("images", 1, "id", True),
            r"images\[1\]\.id: Expected `int \| str`, got `bool`",
        ),
        (_set("images", 2, "file_name", "../4.jpg"), r"images\[2\]: .*leaves the image root"),
        (_set("images", 2, "file_name", "5.jpg"), r"images\[2\]: image '5.jpg' not found"),
        (_set("annotations", 3, "image_id", 77), r"annotations\[3\]: image_id '77' is not in"),
        (_set("annotations", 3, "image_id", 3), r"images\[2\]: image '4' has no caption"),
        (_set("annotations", 3, "id", 7), r"annotations\[3\]: duplicate annotation id 7"),
        (
            _set("annotations", 2, "caption", 5),
            r"annotations\[2\]\.caption: Expected `str`, got `int`, found 5",
        ),
        (_set("annotations", 2, "caption", " "), r"annotations\[2\]: the caption is empty"),
        (
            lambda d: d["annotations"][0].pop("caption"),
            r"annotations\[0\]: .*required field `caption`",
        ),
        (
            lambda d: d["images"][0].pop("file_name"),
            r"images\[0\]: .*required field `file_name`",
        ),
        (
            lambda d: d["images"].__setitem__(1, 5),
            r"images\[1\]: Expected `object`, got `int`",
        ),
        (lambda d: d.pop("annotations"), r"c.json: .*required field `annotations`"),
        (lambda d: d.__setitem__("images", {}), r"c.json: images: Expected `array`, got `object`"),
    ],
)
def test_faults(root: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    value = document()
    change(value)
    with pytest.raises(DatasetError, match=message):
        read(root, value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{\n"images": [\n1,,2]}', "line 3, column 3"),
        (b'{"images": "\n\ncaf\xe9"}', "line 3: byte 4 of the line is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "Expected `object`, got `array`"),
    ],
)
def test_files_that_are_no_json(root: Path, data: bytes, message: str) -> None:
    (root / "c.json").write_bytes(data)
    with pytest.raises(DatasetError, match=message):
        read_coco(root, [("val", root / "c.json")])
    with pytest.raises(DatasetError, match="cannot be read"):
        read_coco(root, [("val", root / "absent.json")])


@pytest.mark.skipif(not _DATA.is_dir(), reason="needs ../shared/data/coco-sample")
def test_real_sample() -> None:
    manifest = read_coco(_DATA / "images", [("val", _DATA / "captions.json")])
    assert manifest.counts == {"val": 76}
    assert sum(len(e.captions) for e in manifest.entries) == 380
    assert "ShareAlike" in manifest.licence


def test_instances_are_phrases(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    images = [{"id": 1, "file_name": "a.jpg", "width": 10, "height": 8}]
    captions = {"images": images, "annotations": [{"id": 5, "image_id": 1, "caption": "x"}]}
    thing = {"image_id": 1, "category_id": 18, "iscrowd": 0}
    things = [
        {**thing, "id": 1, "bbox": [1.5, 2, 8.51, 3]},
        {**thing, "id": 2, "bbox": [0, 0, 1, 1], "iscrowd": 1},
        {**thing, "id": 3, "bbox": [0, 0, 0, 1]},
        {**thing, "id": 4, "bbox": [0, 0, 1, 1], "image_id": 2},
    ]
    boxes = {
        "images": [*images, {"id": 2, "file_name": "b.jpg", "width": 4, "height": 4}],
        "categories": [{"id": 18, "name": "dog", "supercategory": "animal"}],
        "annotations": things,
    }
    for name, values in (("captions", captions), ("boxes", boxes)):
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    files = [("val", tmp_path / "captions.json")]
    manifest = read_coco(tmp_path, files, boxes=[tmp_path / "boxes.json"])
    (phrase,) = manifest.phrases or ()
    assert (phrase.id, phrase.phrase, phrase.types) == ("1#p0", "dog", ("animal",))
    assert (phrase.size, phrase.boxes) == ((10, 8), ((1.5, 2, 10, 5),))
    assert sum(manifest.notes["boxes_left_out"].values()) == 3
    things[0]["bbox"] = [1.5, 2, 9, 3]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    with pytest.raises(DatasetError, match=r"annotations\[0\]: bbox .* is outside its image"):
        read_coco(tmp_path, files, boxes=[tmp_path / "boxes.json"])
