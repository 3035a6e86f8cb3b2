"""Tables that are refused, with file, line and remedy; invalid rows at once, or left out."""

import csv
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.prepare import prepare
from pipeline.datasets.readers.tables.columns import ColumnNames, find_columns
from pipeline.datasets.readers.tables.table import RowFault
from tests.datasets.readers.tables.conftest import Read

HEAD = "path,caption\n"
SPLIT = "path,caption,split\n"
CSV = [
    ("a.jpg,x\n", r"captions.csv, line 1: the header is 'a.jpg,x': no column of paths"),
    ("path,caption,path\n", "line 1: .*: found 'path' more than once"),
    (HEAD + "a.jpg,x\na.jpg,x, y\n", "line 3: 3 fields found, 2 expected.* comma need"),
    ("path;caption\na.jpg;x; y\n", "line 2: 3 fields found, 2 expected.* semicolon need"),
    (HEAD + 'a.jpg,x\na.jpg,"x\n\n', "line 3: this is not CSV"),
    (HEAD + "a.jpg, \n", "line 2: the caption is empty"),
    ("path,caption1,caption2\na.jpg,,\n", "line 2: the caption is empty"),
    (HEAD + "a.jpg,\"['x' ... 'y']\"\n", r"line 2: caption: .* is like a list of texts, but not"),
    (HEAD + ",x\n", "line 2: image path '' is empty"),
    (HEAD + "../a.jpg,x\n", "line 2: .*leaves the image root"),
    (HEAD + "..\\a.jpg,x\n", "line 2: .*leaves the image root"),
    (HEAD + "{root}/../pics/a.jpg,x\n", "leaves the image root"),
    (HEAD + "C:/pics/a.jpg,x\n", "leaves the image root"),
    (HEAD + "/,x\n", "leaves the image root"),
    (HEAD + "pics/z.jpg,x\n", "image 'pics/z.jpg' not found"),
    (HEAD + "in\\b.jpg,x\n./a.jpg,y\n", "has a backslash and './a.jpg' a forward slash"),
    (SPLIT + "a.jpg,x,train\na.jpg,y,val\n", "line 3: image 'a.jpg' has split 'val' here and .*2"),
    (SPLIT + "a.jpg,x,\nin/b.jpg,y,val\n", "line 3: it has a split, and .*line 2 has none"),
    (SPLIT + "a.jpg,x,a b\n", "line 2: split 'a b' is not a plain name"),
    ("path,caption,id\na.jpg,x,k\na.jpg,y,m\n", "line 3: image 'a.jpg' has id 'm' here"),
    ("path,caption,id\na.jpg,x,k\nin/b.jpg,y,k\n", "line 3: id 'k' belongs to 'a.jpg'"),
    ("path,caption,id\na.jpg,x,../k\n", "line 2: id '../k' leaves"),
    (HEAD, "no image"),
    ("", "captions.csv is empty"),
]
JSON_LINES = [
    ('{"path": "a.jpg", "caption": "x"', "captions.jsonl, line 2: JSON is malformed"),
    ("[]", "line 2: Expected `object`, got `array`"),
    ('{"path": "a.jpg"}', "line 2: no column of captions among 'path'"),
    ('{"path": "a.jpg", "caption": "x", "captions": []}', "line 2: found 'caption' and 'captions'"),
    ('{"path": "a.jpg", "captions": [], "split": "val"}', "line 2: the caption is empty"),
    ('{"path": "a.jpg", "captions": [1]}', r"line 2: captions\[0\]: Expected `str`"),
    ('{"path": "a.jpg", "caption": null, "split": "val"}', "line 2: the caption is empty"),
    ('{"path": null, "caption": "x"}', "line 2: the path is missing"),
    ('{"path": "a.jpg", "caption": "x", "caption": "y"}', "line 2: .* 'caption' more than once"),
    ('{"path": "a.jpg", "Caption": "x", "caption": "y"}', "line 2: .* 'caption' more than once"),
    (
        '{"path": "a.jpg", "caption": "\\ud800", "split": "val"}',
        "line 2: JSON is malformed: .*surrogate pair",
    ),
    ('{"path": "a.jpg", "caption": "x", "split": ""}', "line 2: it has no split, and .*line 1"),
    ('{"path": 5, "caption": "x"}', "a path, or the bytes of an image file.*found int"),
    ('{"path": "a.jpg", "caption": 5}', "caption: Expected `str`, found 5"),
    ('{"path": "a.jpg", "caption": "x", "id": [1]}', "id: a text or a whole number"),
    ('{"path": "a.jpg", "caption": "x", "id": true}', "id: a text or a whole number"),
]
JSON = [
    ({"images": [], "annotations": []}, "`pipeline prepare coco`"),
    ({"images": [], "dataset": "x"}, "`pipeline prepare karpathy`"),
    ({"path": ["a.jpg"], "caption": ["x", "y"]}, "same length"),
    ({"path": "a.jpg"}, "found an object with 'path'"),
    (3, "found int; expected a list of objects"),
    ([3], "entry 1: an object was expected, found 3"),
    ([{"path": "a.jpg", "caption": "x"}, {"path": "a.jpg"}], "entry 2: no column of captions"),
]
FILES = [
    ("c.xlsx", "is a spreadsheet.* export it as CSV"),
    ("c.csv.gz", "is compressed; decompress it"),
    ("c", "ends in none of .csv, .tsv"),
    ("c.pkl", "ends in none of"),
]
ENCODINGS = [
    (b"path,caption\na.jpg,caf\xe9\n", None, r"line 2: byte 23 of the .*`encoding=cp1252`"),
    (b"path,caption\na.jpg,x\na.jpg,one: \xff\n", "ascii", "line 3: byte 33 of the file is not as"),
    (b"\xff\xfep\0a\0t\0h\0,\0c\0a\0p\0t\0i\0o\0n\0\n\0x", None, "not utf-16"),
    (b"", "klingon", "'klingon' is not an encoding"),
    (b"", "rot13", "'rot13' is not an encoding"),
]


@pytest.mark.parametrize(
    ("name", "content", "encoding", "message"),
    [
        *(("captions.csv", text, None, message) for text, message in CSV),
        *(
            ("captions.jsonl", f'{{"path": "a.jpg", "caption": "x", "split": "val"}}\n{line}\n',
             None, message)
            for line, message in JSON_LINES
        ),
        *(("c.json", json.dumps(value), None, message) for value, message in JSON),
        *((name, b"x", None, message) for name, message in FILES),
        *(("c.csv", data, encoding, message) for data, encoding, message in ENCODINGS),
    ],
)  # fmt: skip
def test_what_is_refused(
    read: Read, root: Path, name: str, content: Any, encoding: str | None, message: str
) -> None:
    if isinstance(content, str):
        content = content.replace("{root}", str(root))
    with pytest.raises(DatasetError, match=message):
        read(name, content, encoding=encoding)


@pytest.mark.parametrize(
    ("names", "stated", "message"),
    [
        ("image,file_name,text", {}, "'image', 'file_name' may all be the path.*`path_column=...`"),
        ("path,text,title", {}, "'text', 'title' may all be the caption.*`caption_columns=...`"),
        ("path,caption,captions", {}, "found 'caption' and 'captions'; expected only one"),
        ("path,text1,caption1", {}, "'text1', 'caption1' may all be captions"),
        ("path,caption1,text", {}, "'text', 'caption1' may all be captions"),
        ("pth,caption", {}, "no column of paths among .*; did you mean `path_column=pth`"),
        ("path,caption" + "9" * 5000, {}, "no column of captions"),
        ("path,Captoin", {}, "did you mean `caption_columns=Captoin`"),
        ("a,b", {}, "no column of paths among 'a', 'b'; one of path, image,"),
        ("url,caption", {}, "'url' has addresses, and nothing is downloaded.*img2dataset"),
        ("path,caption", {"path": "pathh"}, "`path_column=pathh`: not .*did you mean 'path'"),
        ("path,caption", {"captions": ("x",)}, "`caption_columns=x`: not one of"),
        ("path,caption", {"split": "x"}, "`split_column=x`: not one of"),
        ("path,caption", {"captions": ("caption", "Caption ")}, "'caption' is stated more than"),
        ("path,caption", {"split": "caption"}, "'caption' is stated more than once"),
    ],
)
def test_columns_that_are_not_understood(names: str, stated: Any, message: str) -> None:
    with pytest.raises(RowFault, match=message):
        find_columns(names.split(","), ColumnNames(**stated))


def test_columns_that_occur_twice_in_other_formats(read: Read, root: Path) -> None:
    columns = [["a.jpg"], ["x"], ["y"]]
    names = ["path", "caption", "caption"]
    frame = pd.DataFrame([[item for (item,) in columns]], columns=names)
    table = pa.Table.from_arrays([pa.array(column) for column in columns], names=names)
    pq.write_table(table, file := BytesIO())
    for source in (("c.parquet", file.getvalue()), ("c.json", '{"path": ["a"], "path": ["b"]}')):
        with pytest.raises(DatasetError, match="more than once"):
            read(*source)
    with pytest.raises(DatasetError, match="'caption' more than once"):
        prepare(frame, root=root)
    with pytest.raises(DatasetError, match="record 1: found the name 1; expected names that are"):
        prepare([{"path": "a.jpg", "caption": "x", 1: "y"}], root=root)


def test_a_missing_file_and_other_counts(tmp_path: Path, root: Path, read: Read) -> None:
    for name in ("c.csv", "c.json", "c.parquet", "c.tar", "c.jsonl", "c-{0..2}.tar"):
        with pytest.raises(DatasetError, match=r"c(-0)?\.\w+ cannot be read"):
            prepare(tmp_path / name, tmp_path / "out")
    with pytest.raises(DatasetError, match="val: 0 found, 3 expected"):
        read("c.csv", "path,caption,split\na.jpg,x,train\n", expect={"val": 3})
    with pytest.raises(DatasetError, match=r"line 2: 'a.jpg' is in no folder"):
        read("c.csv", HEAD + "a.jpg,x\n", split_by_folder=True)


@pytest.mark.parametrize("path", ["x" * 300, "/" + "x" * 300, "x" * 245, "/".join("x" * 9000)])
def test_a_path_longer_than_any_file_name(read: Read, tmp_path: Path, path: str) -> None:
    """In a table with images as bytes, too, whose absolute paths are looked up."""
    with pytest.raises(DatasetError, match="line 2: image"):
        read("c.csv", f"{HEAD}{path},x\n")
    png = BytesIO()
    Image.new("RGB", (2, 2)).save(png, "png")
    rows = [{"image": {"bytes": png.getvalue(), "path": path}, "caption": "x"}]
    with pytest.raises(DatasetError, match=r"record 1: the image's name '/?x"):
        prepare(rows, tmp_path / "out")


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


def test_all_faults_at_once_or_left_out_and_listed(read: Read, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as error:
        read("c.csv", BAD)
    message = str(error.value)
    assert "8 lines cannot be used (image not found: 1, unusable caption: 1, " in message
    positions = [message.index(f"line {number}: ") for number in range(3, 11)]
    assert positions == sorted(positions)
    assert message.endswith("or leave such rows out (`skip_bad=True`)")
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
    read("c.csv", HEAD + "a.jpg,x\n", out=out, skip_bad=True)
    assert not (out / "left-out.csv").exists()
    manifest = read("c.jsonl", '{"path": "a.jpg", "captions": ["x", " ", "y"]}\n', skip_bad=True)
    assert manifest.entries[0].captions == ("x", "y")
    with pytest.raises(DatasetError, match=r"line 2: image 'z.jpg' not .*nothing is left"):
        read("c.csv", HEAD + "z.jpg,x\n", out=tmp_path / "none", skip_bad=True)
    assert not (tmp_path / "none").exists()


def test_rows_with_one_reason_are_listed_once_and_twenty_reasons_at_most(read: Read) -> None:
    lines = "".join(f"{n}.jpg,x\n" * 2 for n in range(25)) + "a.jpg,\n" * 3
    with pytest.raises(DatasetError) as error:
        read("c.csv", HEAD + lines)
    message = str(error.value)
    counts = "(image not found: 50, of 25 files, unusable caption: 3, of 1 file), the first are: "
    assert counts in message
    assert ("line 40 and 1 more: " in message, "line 42" in message) == (True, False)
    with pytest.raises(DatasetError, match=r"2 entries .* \(columns: 2\): entry 1 and 1 more: no"):
        read("c.json", json.dumps([{"path": "a.jpg"}, {"path": "in/b.jpg"}]))
