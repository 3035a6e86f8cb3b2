"""Paths as people write them, and all rows that cannot be used at once."""

import csv
from pathlib import Path

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.prepare import prepare
from tests.datasets.readers.tables.conftest import Read


def files(manifest: Manifest) -> list[str]:
    assert all(entry.id == entry.file for entry in manifest.entries)
    return [entry.file for entry in manifest.entries]


def test_absolute_paths_below_the_root(read: Read, root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    text = f"path,caption\n{root}/in/b.jpg,x\n{root}/./a.jpg,y\n{root}/in/b.jpg,z\n"
    manifest = read("c.csv", text)
    assert files(manifest) == ["in/b.jpg", "a.jpg"]
    assert manifest.notes["absolute_paths_made_relative"] == 2
    assert files(prepare(tmp_path / "c.csv", root=tmp_path / "link")) == ["in/b.jpg", "a.jpg"]
    for path in (f"{tmp_path}/c.csv", f"{root}/../pics/a.jpg", "C:/pics/a.jpg", "/"):
        with pytest.raises(DatasetError, match="leaves the image root"):
            read("c.csv", f"path,caption\n{path},x\n")


def test_paths_that_repeat_the_folders_of_the_root(read: Read, root: Path) -> None:
    text = f"path,caption\npics/a.jpg,x\nin/b.jpg,y\n{root.parent.name}/pics/c d.jpg,z\n"
    manifest = read("c.csv", text)
    assert files(manifest) == ["a.jpg", "in/b.jpg", "c d.jpg"]
    cut = manifest.notes["folders_of_the_root_cut_from_paths"]
    assert cut == {"pics/": 1, f"{root.parent.name}/pics/": 1}
    (root / "pics").mkdir()
    (root / "pics" / "a.jpg").touch()
    assert files(read("c.csv", text))[0] == "pics/a.jpg"
    with pytest.raises(DatasetError, match=r"image 'pics/z.jpg' not found"):
        read("c.csv", "path,caption\npics/z.jpg,x\n")


def test_backslashes(read: Read, root: Path) -> None:
    manifest = read("c.csv", "path,caption\nin\\b.jpg,x\na.jpg,y\n.\\c d.jpg,z\n")
    assert files(manifest) == ["in/b.jpg", "a.jpg", "c d.jpg"]
    assert manifest.notes["paths_with_backslashes"] is True
    (root / "in" / "c.jpg").touch()
    with pytest.raises(DatasetError, match=r"has a backslash and 'in/c.jpg' a forward slash"):
        read("c.csv", "path,caption\nin\\b.jpg,x\nin/c.jpg,y\n")
    with pytest.raises(DatasetError, match="leaves the image root"):
        read("c.csv", "path,caption\n..\\a.jpg,x\n")


def test_duplicate_lines(read: Read) -> None:
    manifest = read("c.csv", "path,caption\na.jpg,x\na.jpg,y\n./a.jpg, x \nin/b.jpg,x\na.jpg,x\n")
    assert [e.captions for e in manifest.entries] == [("x", "y"), ("x",)]
    assert manifest.notes["duplicate_lines_left_out"] == 2
    assert "captions_with_blanks_cut_or_lines_joined" not in manifest.notes
    # Within one list they are what somebody wrote down, as two annotators of COCO do.
    manifest = read("c.jsonl", '{"path": "a.jpg", "captions": ["x", "x"]}\n')
    assert manifest.entries[0].captions == ("x", "x")
    many = [f"caption {n % 100}" for n in range(1000)]
    manifest = read("c.csv", "path,caption\n" + "".join(f"a.jpg,{text}\n" for text in many))
    assert manifest.entries[0].captions == tuple(many[:100])


BAD = (
    "path,caption,split,id\n"
    "a.jpg,x,train,1\n"
    "z.jpg,x,train,2\n"
    "a.jpg, ,train,1\n"
    "../a.jpg,x,train,3\n"
    "in/b.jpg,y,train,1\n"
    "a.jpg,x\n"
    "a.jpg,z,val,1\n"
    "in/b.jpg,y,,9\n"
    "in/b.jpg,y,a b,9\n"
    "in/b.jpg,y,val,9\n"
)


def test_all_faults_at_once(read: Read) -> None:
    with pytest.raises(DatasetError) as error:
        read("c.csv", BAD)
    text = str(error.value)
    assert "8 lines cannot be used (image not found: 1, unusable caption: 1, " in text
    reasons = [part for part in text.split("; ") if ": " in part]
    numbers = [3, 4, 5, 6, 7, 8, 9, 10]
    positions = [text.index(f"line {number}: ") for number in numbers]
    assert positions == sorted(positions)
    assert len(reasons) >= 8
    assert text.endswith("or leave such rows out (`skip_bad=True`)")


def test_the_first_twenty_are_listed(read: Read) -> None:
    lines = "".join(f"{n}.jpg,x\n" for n in range(25)) + "a.jpg,\n" * 3
    with pytest.raises(DatasetError) as error:
        read("c.csv", "path,caption\n" + lines)
    text = str(error.value)
    assert (
        "28 lines cannot be used (image not found: 25, unusable caption: 3), the first 20" in text
    )
    assert "line 21: " in text
    assert "line 22: " not in text


def test_bad_rows_are_left_out_and_listed(read: Read, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = read("c.csv", BAD, out=out, skip_bad=True)
    assert [(e.id, e.file, e.split, e.captions) for e in manifest.entries] == [
        ("1", "a.jpg", "train", ("x",)),
        ("9", "in/b.jpg", "val", ("y",)),
    ]
    assert sum(manifest.notes["rows_left_out"].values()) == 8
    assert read_manifest(out).notes == manifest.notes
    with (out / "left-out.csv").open(newline="") as stream:
        listed = list(csv.DictReader(stream))
    assert [(row["line"], row["path"]) for row in listed] == [
        ("3", "z.jpg"), ("4", "a.jpg"), ("5", "../a.jpg"), ("6", "in/b.jpg"),
        ("7", "a.jpg"), ("8", "a.jpg"), ("9", "in/b.jpg"), ("10", "in/b.jpg"),
    ]  # fmt: skip
    assert listed[0]["reason"].startswith("image 'z.jpg' not found below ")
    read("c.csv", "path,caption\na.jpg,x\n", out=out, skip_bad=True)
    assert not (out / "left-out.csv").exists()


def test_nothing_left(read: Read, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"line 2: image 'z.jpg' not .*nothing is left"):
        read("c.csv", "path,caption\nz.jpg,x\n", out=tmp_path / "out", skip_bad=True)
    assert not (tmp_path / "out").exists()


def test_captions_of_a_list_are_left_out_one_by_one(read: Read) -> None:
    manifest = read("c.jsonl", '{"path": "a.jpg", "captions": ["x", " ", "y"]}\n', skip_bad=True)
    assert manifest.entries[0].captions == ("x", "y")
    assert manifest.notes["rows_left_out"] == {"unusable caption": 1}


def test_splits_by_folder(read: Read, root: Path) -> None:
    manifest = read("c.csv", "path,caption\nin/b.jpg,x\n", split_by_folder=True)
    assert [(e.file, e.split) for e in manifest.entries] == [("in/b.jpg", "in")]
    with pytest.raises(DatasetError, match=r"line 2: 'a.jpg' is in no folder"):
        read("c.csv", "path,caption\na.jpg,x\n", split_by_folder=True)
