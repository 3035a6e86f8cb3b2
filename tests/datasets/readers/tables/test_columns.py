"""What columns mean: recognised names, stated names, several captions, and what is refused."""

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables.columns import KNOWN, ColumnNames, find_columns
from pipeline.datasets.readers.tables.table import RowFault
from tests.datasets.readers.tables.conftest import Read


@pytest.mark.parametrize("path", KNOWN["path"])
@pytest.mark.parametrize("caption", ["caption", "text", "Sentence", "DESCRIPTION", "title"])
def test_names_are_recognised(path: str, caption: str) -> None:
    found = find_columns([" x", path.upper(), caption], ColumnNames())
    assert (found.path, found.captions, found.others) == (path.upper(), (caption,), {" x"})


def test_plain_names_come_first() -> None:
    names = ["file_name", "path", "text", "caption", "image_id", "id", "subset", "split"]
    found = find_columns(names, ColumnNames())
    assert (found.path, found.captions, found.split, found.id) == (
        "path",
        ("caption",),
        "split",
        "id",
    )
    assert found.recognised == {}
    assert found.others == {"file_name", "text", "image_id", "subset"}


@pytest.mark.parametrize(
    ("names", "captions"),
    [
        ("caption1,path,caption2", ["caption1", "caption2"]),
        ("path,caption_10,caption_2,caption_0", ["caption_0", "caption_2", "caption_10"]),
        ("path,Text 2,Text 1", ["Text 1", "Text 2"]),
        ("path,caption,caption2", ["caption", "caption2"]),
    ],
)
def test_several_columns_of_captions(names: str, captions: list[str]) -> None:
    assert list(find_columns(names.split(","), ColumnNames()).captions) == captions


@pytest.mark.parametrize(
    ("names", "stated", "message"),
    [
        ("image,file_name,text", {}, "'image', 'file_name' may all be the path.*`path_column=...`"),
        ("path,text,title", {}, "'text', 'title' may all be the caption.*`caption_columns=...`"),
        ("path,caption,captions", {}, "found 'caption' and 'captions'; expected only one"),
        ("path,text1,caption1", {}, "'text1', 'caption1' may all be captions"),
        ("path,caption1,text", {}, "'text', 'caption1' may all be captions"),
        (
            "pth,caption",
            {},
            "no column of paths among .*; did you mean `path_column=pth`",
        ),
        ("path,caption" + "9" * 5000, {}, "no column of captions"),
        ("path,Captoin", {}, "did you mean `caption_columns=Captoin`"),
        ("a,b", {}, "no column of paths among 'a', 'b'; one of path, image,"),
        ("url,caption", {}, "'url' has addresses, and nothing is downloaded.*img2dataset"),
        ("path,caption", {"path": "pathh"}, "`path_column=pathh`: not .*did you mean 'path'"),
        ("path,caption", {"captions": ("x",)}, "`caption_columns=x`: not one of"),
        ("path,caption", {"split": "x"}, "`split_column=x`: not one of"),
    ],
)
def test_what_is_not_understood(names: str, stated: dict[str, str], message: str) -> None:
    with pytest.raises(RowFault, match=message):
        find_columns(names.split(","), ColumnNames(**stated))  # type: ignore[arg-type]


def test_recognised_columns_are_noted(read: Read) -> None:
    text = "Image_ID;file_name;TEXT;partition;width\n7;a.jpg;x;train;3\n7;a.jpg;y;train;3\n"
    manifest = read("c.csv", text)
    (entry,) = manifest.entries
    assert (entry.id, entry.file, entry.split, entry.captions) == (
        "7",
        "a.jpg",
        "train",
        ("x", "y"),
    )
    assert manifest.notes["columns_recognised"] == {
        "path": ["file_name"], "caption": ["text"], "split": ["partition"], "id": ["image_id"]
    }  # fmt: skip
    assert manifest.notes["metadata_columns"] == ["width"]


def test_stated_columns(read: Read) -> None:
    text = "A,B,C,D,path\na.jpg,x,y,k,in/b.jpg\n"
    options = {"path_column": "a", "caption_columns": ["B", "c"], "id_column": "D"}
    manifest = read("c.csv", text, **options)
    assert [(e.id, e.file, e.captions) for e in manifest.entries] == [("k", "a.jpg", ("x", "y"))]
    assert manifest.notes["metadata_columns"] == ["path"]
    (entry,) = read("c.csv", text, path_column="A", caption_columns="B", id_column="path").entries
    assert (entry.id, entry.captions) == ("in/b.jpg", ("x",))


def test_empty_cells_of_several_captions(read: Read) -> None:
    manifest = read("c.csv", "path,caption1,caption2\na.jpg,x,\nin/b.jpg, ,y\nc d.jpg,p,q\n")
    assert [e.captions for e in manifest.entries] == [("x",), ("y",), ("p", "q")]
    assert manifest.notes["empty_caption_cells"] == 2
    with pytest.raises(DatasetError, match="line 2: the caption is empty"):
        read("c.csv", "path,caption1,caption2\na.jpg,,\n")


def test_a_json_list_in_a_cell(read: Read) -> None:
    text = 'path,captions\na.jpg,"[""x, y"", ""z""]"\nin/b.jpg,no list\n'
    assert [e.captions for e in read("c.csv", text).entries] == [("x, y", "z"), ("no list",)]
    with pytest.raises(DatasetError, match="line 2: captions: a JSON list was expected"):
        read("c.csv", "path,captions\na.jpg,\"['x', 'y']\"\n")
    (entry,) = read("c.csv", "path,caption\na.jpg,[x] y\n").entries
    assert entry.captions == ("[x] y",)


def test_values_of_json(read: Read) -> None:
    (entry,) = read("c.jsonl", '{"img": "a.jpg", "texts": ["x", "y"], "key": 7}\n').entries
    assert (entry.id, entry.captions) == ("7", ("x", "y"))
    for record, message in (
        ('{"path": 5, "caption": "x"}', "a path, or the bytes of an image file.*found int"),
        ('{"path": "a.jpg", "caption": 5}', "caption: Expected `str`, found 5"),
        ('{"path": "a.jpg", "caption": "x", "id": [1]}', "id: a text or a whole number"),
        ('{"path": "a.jpg", "caption": "x", "id": true}', "id: a text or a whole number"),
    ):
        with pytest.raises(DatasetError, match=message):
            read("c.jsonl", record + "\n")
