"""CSV relatives and JSON in every encoding: the same content is the same dataset."""

import json
from pathlib import Path

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.prepare import prepare
from tests.datasets.readers.tables.conftest import Read

PLAIN = 'path,caption,split\nin/b.jpg,"one, ""two"" ü; |",val\na.jpg,Käfer\u2019s 5€,train\n'
ROWS = [
    ("in/b.jpg", "val", ('one, "two" ü; |',)),
    ("a.jpg", "train", ("Käfer\u2019s 5€",)),
]


def rows(manifest: Manifest) -> list[tuple[str, str, tuple[str, ...]]]:
    assert all(entry.id == entry.file for entry in manifest.entries)
    return [(e.file, e.split, e.captions) for e in manifest.entries]


def separated(mark: str) -> str:
    return (
        PLAIN.replace("path,caption,split", mark.join(("path", "caption", "split")))
        .replace(",val", f"{mark}val")
        .replace(",train", f"{mark}train")
        .replace(".jpg,", f".jpg{mark}")
    )


def test_a_plain_header_has_no_notes(read: Read) -> None:
    manifest = read("c.csv", PLAIN)
    assert rows(manifest) == ROWS
    assert list(manifest.notes) == ["source_files"]


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolon"), ("\t", "tab"), ("|", "bar")])
@pytest.mark.parametrize("suffix", ["csv", "txt", "tsv"])
def test_the_separator_is_recognised_and_noted(
    read: Read, mark: str, name: str, suffix: str
) -> None:
    manifest = read(f"c.{suffix}", separated(mark))
    assert rows(manifest) == ROWS
    assert manifest.notes["separator"] == name
    with pytest.raises(DatasetError, match=rf"line 4: 2 fields found, 3 expected.* {name} need"):
        read(f"c.{suffix}", separated(mark) + f"a.jpg{mark}x, y\n")


def test_commas_in_a_file_called_tsv(read: Read) -> None:
    assert rows(read("c.tsv", PLAIN)) == ROWS


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "cp1252"]
)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_encodings(read: Read, encoding: str, ends: str) -> None:
    data = PLAIN.replace("\n", ends).encode(encoding)
    stated = encoding if encoding in ("utf-16-le", "utf-16-be", "cp1252") else None
    manifest = read("c.csv", data, encoding=stated)
    assert rows(manifest) == ROWS
    assert manifest.notes.get("encoding", "utf-8") == encoding.removesuffix("-sig")
    lines = [json.dumps({"path": p, "captions": c, "split": s}) for p, s, c in ROWS]
    text = ends.join([*lines, ""]).encode(encoding)
    assert rows(read("c.jsonl", text, encoding=stated)) == ROWS
    assert rows(read("c.json", f"[{','.join(lines)}]".encode(encoding), encoding=stated)) == ROWS


def test_a_wrong_encoding_names_byte_line_and_remedy(read: Read) -> None:
    data = PLAIN.encode("cp1252")
    with pytest.raises(DatasetError, match=r"line 2: byte \d+ of the .*`encoding=cp1252`"):
        read("c.csv", data)
    with pytest.raises(DatasetError, match=r"c.csv, line 3: byte 51 of the file is not ascii"):
        read(
            "c.csv", b"path,caption\na.jpg,x\na.jpg,plain ascii, then one: \xff\n", encoding="ascii"
        )
    with pytest.raises(DatasetError, match=r"not utf-16"):
        read("c.csv", b"\xff\xfep\0a\0t\0h\0,\0c\0a\0p\0t\0i\0o\0n\0\n\0x")
    with pytest.raises(DatasetError, match="'klingon' is not an encoding"):
        read("c.csv", data, encoding="klingon")
    with pytest.raises(DatasetError, match="'rot13' is not an encoding"):
        read("c.csv", data, encoding="rot13")


def test_json_by_columns(read: Read) -> None:
    columns = {"path": [p for p, _, _ in ROWS], "caption": [c[0] for _, _, c in ROWS]}
    columns["split"] = [s for _, s, _ in ROWS]
    assert rows(read("c.json", json.dumps(columns))) == ROWS


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"images": [], "annotations": []}, "`pipeline prepare coco`"),
        ({"images": [], "dataset": "x"}, "`pipeline prepare karpathy`"),
        ({"path": ["a.jpg"], "caption": ["x", "y"]}, "same length"),
        ({"path": "a.jpg"}, "found an object with 'path'"),
        (3, "found int; expected a list of objects"),
        ([3], "entry 1: an object was expected, found 3"),
        ([{"path": "a.jpg", "caption": "x"}, {"path": "a.jpg"}], "entry 2: no column of captions"),
    ],
)
def test_other_json_is_refused(read: Read, value: object, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read("c.json", json.dumps(value))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("c.xlsx", "is a spreadsheet.* export it as CSV"),
        ("c.XLS", "is a spreadsheet"),
        ("c.csv.gz", "is compressed; decompress it"),
        ("c", "ends in none of .csv, .tsv"),
        ("c.pkl", "ends in none of"),
    ],
)
def test_other_kinds_are_refused_with_the_way_out(read: Read, name: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read(name, b"x")


def test_a_missing_file(tmp_path: Path, root: Path) -> None:
    for name in ("c.csv", "c.json", "c.parquet", "c.tar", "c.jsonl", "c-{0..2}.tar"):
        with pytest.raises(DatasetError, match=r"c(-0)?\.\w+ cannot be read"):
            prepare(tmp_path / name, tmp_path / "out")
