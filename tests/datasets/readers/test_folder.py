"""A folder with CSV or JSONL: what is read from them, and every fault named with its line."""

from pathlib import Path

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.folder import read_folder
from pipeline.datasets.splits import SHARES, split_by_hash


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "in/b.jpg", "c d.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def read(root: Path, text: str, suffix: str = "csv") -> Manifest:
    (root / f"captions.{suffix}").write_text(text, encoding="utf-8", newline="")
    return read_folder(root, root / f"captions.{suffix}", name="mine")


def rows(manifest: Manifest) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(e.id, e.file, e.split, e.captions) for e in manifest.entries]


EXPECTED = [
    ("in/b.jpg", "in/b.jpg", "val", ("one, with comma", "two lines")),
    ("a.jpg", "a.jpg", "train", ("Ein “Käfer”",)),
]


def test_csv(root: Path) -> None:
    text = (
        "\ufeffcaption,path,split\r\n"
        '"one, with comma",in/b.jpg,val\r\n'
        "Ein “Käfer”,a.jpg,train\r\n"
        "\r\n"
        '"two\r\nlines",./in/b.jpg,val\r\n'
    )
    manifest = read(root, text)
    assert rows(manifest) == EXPECTED
    assert manifest.notes["captions_with_blanks_cut_or_lines_joined"] == 1


def test_jsonl(root: Path) -> None:
    text = (
        '{"path": "in/b.jpg", "captions": ["one, with comma", "two\\nlines"], "split": "val"}\n'
        "\n"
        '{"path": "a.jpg", "caption": "Ein “Käfer”", "split": "train", "width": 3}\n'
    )
    manifest = read(root, text, "jsonl")
    assert rows(manifest) == EXPECTED
    assert manifest.notes["metadata_columns"] == ["width"]


def test_ids_and_other_columns(root: Path) -> None:
    manifest = read(root, "id,path,caption,url\nx,a.jpg,c,u\ny,in/b.jpg,d,u\nx,a.jpg,e,u\n")
    assert [(e.id, e.file, e.captions) for e in manifest.entries] == [
        ("x", "a.jpg", ("c", "e")),
        ("y", "in/b.jpg", ("d",)),
    ]
    assert manifest.notes["metadata_columns"] == ["url"]


def test_without_splits_the_hash_decides(root: Path) -> None:
    names = [f"{i}.jpg" for i in range(60)]
    for name in names:
        (root / name).touch()
    manifest = read(root, "path,caption\n" + "".join(f"{n},x\n" for n in names))
    assert {e.id: e.split for e in manifest.entries} == split_by_hash(names, SHARES)
    assert manifest.notes["split_by_hash_of_id"] == SHARES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg,x\n", r"captions.csv, line 1: the header is 'a.jpg,x': no column of paths"),
        ("path,caption,path\n", r"line 1: the header has 'path' more than once"),
        ("path,caption\na.jpg,x\na.jpg,x, y\n", r"line 3: 3 fields found, 2 expected"),
        ('path,caption\na.jpg,x\na.jpg,"x\n\n', r"line 3: this is not CSV"),
        ("path,caption\na.jpg, \n", r"line 2: the caption is empty"),
        ("path,caption\n,x\n", r"line 2: image path '' is empty"),
        ("path,caption\n../a.jpg,x\n", r"line 2: .*leaves the image root"),
        ("path,caption\na.jpg,x\nz.jpg,x\n", r"line 3: image 'z.jpg' not found"),
        (
            "path,caption,split\na.jpg,x,train\na.jpg,y,val\n",
            r"line 3: image 'a.jpg' has split 'val' here and 'train' in .*line 2",
        ),
        (
            "path,caption,split\na.jpg,x,\nin/b.jpg,y,val\n",
            r"line 3: it has a split, and .*line 2 has none",
        ),
        ("path,caption,split\na.jpg,x,a b\n", r"line 2: split 'a b' is not a plain name"),
        ("path,caption,id\na.jpg,x,k\na.jpg,y,m\n", r"line 3: image 'a.jpg' has id 'm' here"),
        ("path,caption,id\na.jpg,x,k\nin/b.jpg,y,k\n", r"line 3: id 'k' belongs to 'a.jpg'"),
        ("path,caption,id\na.jpg,x,../k\n", r"line 2: id '../k' leaves"),
        ("path,caption\n", r"no image"),
        ("", r"captions.csv is empty"),
    ],
)
def test_faults_of_csv(root: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read(root, text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"path": "a.jpg", "caption": "x"', r"captions.jsonl, line 2: JSON is malformed"),
        ("[]", r"line 2: Expected `object`, got `array`"),
        ('{"path": "a.jpg"}', r"line 2: no column of captions among 'path'"),
        (
            '{"path": "a.jpg", "caption": "x", "captions": []}',
            r"line 2: found 'caption' and 'captions'",
        ),
        ('{"path": "a.jpg", "captions": [], "split": "val"}', r"line 2: the caption is empty"),
        ('{"path": "a.jpg", "captions": [1]}', r"line 2: captions\[0\]: Expected `str`"),
        ('{"path": "a.jpg", "caption": null}', r"line 2: no column of captions"),
        (
            '{"path": "a.jpg", "caption": "\\ud800", "split": "val"}',
            r"line 2: JSON is malformed: .*surrogate pair",
        ),
        (
            '{"path": "a.jpg", "caption": "x", "split": ""}',
            r"line 2: it has no split, and .*line 1",
        ),
    ],
)
def test_faults_of_jsonl(root: Path, line: str, message: str) -> None:
    first = '{"path": "a.jpg", "caption": "x", "split": "val"}\n'
    with pytest.raises(DatasetError, match=message):
        read(root, first + line, "jsonl")


def test_other_kinds_encodings_and_counts(root: Path) -> None:
    with pytest.raises(DatasetError, match=r"ends in none of .csv, .tsv"):
        read(root, "path,caption\na.jpg,x\n", "xml")
    (root / "c.csv").write_text("path,caption,split\na.jpg,x,train\n")
    with pytest.raises(DatasetError, match="val: 0 found, 3 expected"):
        read_folder(root, root / "c.csv", name="mine", expect={"val": 3})
    (root / "c.csv").write_bytes("path,caption\na.jpg,x\na.jpg,caf\u00e9\n".encode("utf-16-le"))
    with pytest.raises(DatasetError, match=r"line (1|3)"):
        read_folder(root, root / "c.csv", name="mine")
    (root / "c.csv").write_bytes("path,caption\na.jpg,x\na.jpg,caf\u00e9\n".encode("latin-1"))
    with pytest.raises(DatasetError, match="line 3: byte 10 of the line is not UTF-8"):
        read_folder(root, root / "c.csv", name="mine")
