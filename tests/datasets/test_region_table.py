"""A user's boxes: CSV and JSONL give one dataset, and every fault its line."""

import json
from pathlib import Path

import pytest
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.region_table import read_regions
from pipeline.datasets.regions import read_phrases
from pipeline.store.hashing import sha256_of_file

ROWS = [
    ("a.png", "a dog", 0, 0, 10, 20, "animal", "1", "train"),
    ("b.png", "a, cat", 1.5, 2, 3, 4, "", "", "val"),
    ("a.png", "it", 0, 0, 10, 20, "animal", "1", "train"),
]
NAMES = ("image", "phrase", "x0", "y0", "x1", "y1", "type", "chain", "split")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in "ab":
        Image.new("RGB", (10, 20)).save(tmp_path / f"{name}.png")
    return tmp_path


def test_both_forms(root: Path) -> None:
    lines = [",".join(f'"{value}"' for value in row) for row in (NAMES, *ROWS)]
    (root / "r.csv").write_text("\n".join(lines))
    records = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
    (root / "r.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    csv, jsonl = (read_regions(root, root / f"r.{form}", name="mine") for form in ("csv", "jsonl"))
    assert csv.phrases == jsonl.phrases
    assert csv.counts == {"train": 1, "val": 1}
    found = csv.phrases or ()
    assert [p.id for p in found] == ["a.png#p0", "a.png#p1", "b.png#p0"]
    assert (found[1].chain, found[2].boxes) == ("1", ((1.5, 2, 3, 4),))


def test_without_splits(root: Path) -> None:
    (root / "r.csv").write_text("image,phrase,x0,y0,x1,y1\na.png,x,0,0,1,1\n")
    manifest = read_regions(root, root / "r.csv", name="mine")
    assert "split_by_hash_of_id" in manifest.notes


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a.png,x,0,0,11,5,train", r"line 3: the box \[0.0, 0.0, 11.0, 5.0\] is outside"),
        ("a.png,x,3,0,3,5,train", "line 3: .* has no area"),
        ("a.png,x,nan,0,3,5,train", "line 3: .* has no area"),
        ("a.png,x,-1,0,3,5,train", "line 3: .* is outside its image of 10 x 20"),
        ("a.png,x,a,0,3,5,train", "line 3: the box 'a,0,3,5' is not four numbers"),
        ("a.png,,0,0,3,5,train", "line 3: the phrase: the caption is empty"),
        ("c.png,x,0,0,3,5,train", "line 3: image 'c.png' not found"),
        ("a.png,x,0,0,3,5,val", "line 3: the split is 'val' here and 'train' in .*line 2"),
        ("b.png,x,0,0,3,5,", "line 3: the split is '' here and 'train' in .*line 2"),
        ("r.csv,x,0,0,3,5,train", "size of .*r.csv cannot be read"),
    ],
)
def test_faults_name_the_line(root: Path, line: str, complaint: str) -> None:
    head = "image,phrase,x0,y0,x1,y1,split\na.png,x,0,0,1,1,train\n"
    (root / "r.csv").write_text(head + line + "\n")
    with pytest.raises(DatasetError, match=complaint):
        read_regions(root, root / "r.csv", name="mine")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"image":"a.png"', '"image":["a.png"]'),
        ('"size":[10,20]', '"size":[10]'),
        ('"boxes":[[', '"boxes":[[1e999,' + "9" * 400 + ",1,1],["),
        ('"types":[]', '"types":' + "[" * 10**5 + "]" * 10**5),
    ],
    ids=["types", "sizes", "numbers", "depth"],
)
def test_a_damaged_line_is_named(root: Path, old: str, new: str) -> None:
    (root / "r.csv").write_text("image,phrase,x0,y0,x1,y1\na.png,x,0,0,1,1\n")
    read_regions(root, root / "r.csv", name="mine").write(root / "out")
    path, described = root / "out" / "regions.jsonl", root / "out" / "dataset.json"
    text, before = path.read_text(), sha256_of_file(path)
    assert old in text
    path.write_text(text.replace(old, new, 1))
    described.write_text(described.read_text().replace(before, sha256_of_file(path)))
    with pytest.raises(DatasetError, match=r"regions.jsonl: line 1: .*; prepare the dataset again"):
        read_phrases(root / "out")
