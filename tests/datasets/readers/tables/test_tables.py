"""Tables in text files: separators, encodings, columns and paths in the variants that exist."""

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.prepare import prepare
from pipeline.datasets.readers.tables.caption_cells import texts_of
from pipeline.datasets.readers.tables.columns import KNOWN, ColumnNames, find_columns
from pipeline.datasets.readers.tables.table import RowFault
from pipeline.datasets.splits import SHARES, split_by_hash
from tests.datasets.readers.tables.conftest import Read

TABLE = [
    ("path", "caption", "split"),
    ("in/b.jpg", '"one, ""two"" ü; |"', "val"),
    ("a.jpg", "Käfer\u2019s 5€", "train"),
]
ROWS = [("in/b.jpg", "val", ('one, "two" ü; |',)), ("a.jpg", "train", ("Käfer\u2019s 5€",))]


def text(mark: str = ",", end: str = "\n") -> str:
    return "".join(mark.join(row) + end for row in TABLE)


def rows(manifest: Manifest) -> list[tuple[str, str, tuple[str, ...]]]:
    assert all(entry.id == entry.file for entry in manifest.entries)
    return [(e.file, e.split, e.captions) for e in manifest.entries]


def captions(manifest: Manifest) -> list[tuple[str, ...]]:
    return [entry.captions for entry in manifest]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("suffix", ["csv", "txt", "tsv"])
def test_separators(read: Read, mark: str, suffix: str) -> None:
    manifest = read(f"c.{suffix}", text(mark))
    assert rows(manifest) == ROWS
    names = {";": "semicolon", "\t": "tab", "|": "bar"}
    noted = {"separator": names[mark]} if mark in names else {}
    assert {k: v for k, v in manifest.notes.items() if k != "source_files"} == noted


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "cp1252"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings(read: Read, encoding: str, end: str) -> None:
    stated = encoding if encoding in ("utf-16-le", "utf-16-be", "cp1252") else None
    manifest = read("c.csv", text(end=end).encode(encoding), encoding=stated)
    assert rows(manifest) == ROWS
    assert manifest.notes.get("encoding", "utf-8") == encoding.removesuffix("-sig")
    lines = [json.dumps({"path": p, "captions": c, "split": s}) for p, s, c in ROWS]
    data = end.join([*lines, "", ""]).encode(encoding)
    assert rows(read("c.jsonl", data, encoding=stated)) == ROWS
    assert rows(read("c.json", f"[{','.join(lines)}]".encode(encoding), encoding=stated)) == ROWS


def test_line_breaks_in_quotes_and_lists_in_cells(read: Read) -> None:
    manifest = read("c.csv", 'caption,path\r\n"two\r\nlines",./in/b.jpg\r\n\r\nx,a.jpg\r\n')
    assert captions(manifest) == [("two lines",), ("x",)]
    assert manifest.notes["captions_with_blanks_cut_or_lines_joined"] == 1
    cells = 'path,captions\na.jpg,"[""x, y"", ""z""]"\nin/b.jpg,no list\n'
    assert captions(read("c.csv", cells)) == [("x, y", "z"), ("no list",)]
    assert captions(read("c.csv", "path,caption\na.jpg,[x] y\n")) == [("[x] y",)]


def test_json_by_columns_and_its_values(read: Read) -> None:
    columns = {"path": [p for p, _, _ in ROWS], "caption": [c[0] for _, _, c in ROWS]}
    columns["split"] = [s for _, s, _ in ROWS]
    assert rows(read("c.json", json.dumps(columns))) == ROWS
    by_path = {path: list(texts) if k else texts[0] for k, (path, _, texts) in enumerate(ROWS)}
    assert captions(read("c.json", json.dumps(by_path))) == [texts for _, _, texts in ROWS]
    (entry,) = read("c.jsonl", '{"img": "a.jpg", "texts": ["x", "y"], "key": 7}\n').entries
    assert (entry.id, entry.captions) == ("7", ("x", "y"))


def test_the_answer_to_llavas_question_is_the_caption(read: Read) -> None:
    turns = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A cat."}]
    entry = {"id": "7", "image": "a.jpg", "conversations": turns}
    assert captions(read("c.json", json.dumps([entry]))) == [("A cat.",)]
    with pytest.raises(DatasetError, match=r"of one question .* found a list of 4"):
        read("c.json", json.dumps([{**entry, "conversations": turns * 2}]))


@pytest.mark.parametrize(("suffix", "mark"), [("csv", ","), ("tsv", "\t")])
def test_columns_of_a_file_without_a_header(read: Read, suffix: str, mark: str) -> None:
    data = text(mark).partition("\n")[2]
    assert rows(read(f"c.{suffix}", data, columns="Path,caption, split")) == ROWS
    with pytest.raises(DatasetError, match=r"line 1: .*: 3 fields found, 4 columns stated; name"):
        read(f"c.{suffix}", data, columns=["path", "caption", "split", "id"])


@pytest.mark.parametrize("path", KNOWN["path"])
@pytest.mark.parametrize("caption", ["caption", "text", "Sentence", "DESCRIPTION", "title"])
def test_names_of_columns_are_recognised(path: str, caption: str) -> None:
    found = find_columns([" x", path.upper(), caption], ColumnNames())
    assert (found.path, found.captions, found.others) == (path.upper(), (caption,), {" x"})


def test_standard_names_come_first() -> None:
    names = ["file_name", "path", "text", "caption", "image_id", "id", "subset", "split"]
    found = find_columns(names, ColumnNames())
    assert (found.path, found.captions, found.split, found.id) == (
        "path", ("caption",), "split", "id",
    )  # fmt: skip
    assert found.recognised == {}
    assert found.others == {"file_name", "text", "image_id", "subset"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("caption1,path,caption2", ["caption1", "caption2"]),
        ("path,caption_10,caption_2,caption_0", ["caption_0", "caption_2", "caption_10"]),
        ("path,Text 2,Text 1", ["Text 1", "Text 2"]),
        ("path,caption,caption2", ["caption", "caption2"]),
    ],
)
def test_several_columns_of_captions(names: str, expected: list[str]) -> None:
    assert list(find_columns(names.split(","), ColumnNames()).captions) == expected


def test_columns_are_noted_or_stated(read: Read) -> None:
    table = "Image_ID;file_name;TEXT;partition;width\n7;a.jpg;x;train;3\n7;a.jpg;y;train;3\n"
    manifest = read("c.csv", table)
    (entry,) = manifest.entries
    assert (entry.id, entry.file, entry.split, entry.captions) == (
        "7", "a.jpg", "train", ("x", "y"),
    )  # fmt: skip
    assert manifest.notes["columns_recognised"] == {
        "path": ["file_name"], "caption": ["text"], "split": ["partition"], "id": ["image_id"]
    }  # fmt: skip
    assert manifest.notes["metadata_columns"] == ["width"]
    options: dict[str, Any] = {"path_column": "a", "caption_columns": ["B", "c"], "id_column": "D"}
    manifest = read("c.csv", "A,B,C,D,path\na.jpg,x,y,k,in/b.jpg\n", **options)
    assert [(e.id, e.file, e.captions) for e in manifest.entries] == [("k", "a.jpg", ("x", "y"))]
    assert manifest.notes["metadata_columns"] == ["path"]
    manifest = read("c.csv", "path,caption1,caption2\na.jpg,x,\nin/b.jpg, ,y\nc d.jpg,p,q\n")
    assert captions(manifest) == [("x",), ("y",), ("p", "q")]
    assert manifest.notes["empty_caption_cells"] == 2


def test_absolute_paths_below_the_root(read: Read, root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    manifest = read("c.csv", f"path,caption\n{root}/in/b.jpg,x\n{root}/./a.jpg,y\n")
    assert [row[0] for row in rows(manifest)] == ["in/b.jpg", "a.jpg"]
    assert manifest.notes["absolute_paths_made_relative"] == 2
    assert rows(prepare(tmp_path / "c.csv", root=tmp_path / "link")) == rows(manifest)


def test_a_root_behind_a_url_is_no_missing_folder(read: Read, root: Path, tmp_path: Path) -> None:
    """Also as a `Path`, which has one slash after the scheme."""
    here = read("c.csv", "path,caption\nin/b.jpg,x\n")
    for url in (f"file://{root}", Path(f"file://{root}")):
        assert rows(prepare(tmp_path / "c.csv", root=url)) == rows(here)


def test_paths_that_repeat_the_folders_of_the_root(read: Read, root: Path) -> None:
    table = f"path,caption\npics/a.jpg,x\nin/b.jpg,y\n{root.parent.name}/pics/c d.jpg,z\n"
    manifest = read("c.csv", table)
    assert [row[0] for row in rows(manifest)] == ["a.jpg", "in/b.jpg", "c d.jpg"]
    cut = manifest.notes["folders_of_the_root_cut_from_paths"]
    assert cut == {"pics/": 1, f"{root.parent.name}/pics/": 1}
    (root / "pics").mkdir()
    (root / "pics" / "a.jpg").touch()
    assert rows(read("c.csv", table))[0][0] == "pics/a.jpg"


def test_backslashes(read: Read) -> None:
    manifest = read("c.csv", "path,caption\nin\\b.jpg,x\na.jpg,y\n.\\c d.jpg,z\n")
    assert [row[0] for row in rows(manifest)] == ["in/b.jpg", "a.jpg", "c d.jpg"]
    assert manifest.notes["paths_with_backslashes"] is True


def test_equal_captions_are_kept(read: Read) -> None:
    # Two annotators write the same sentence, in Flickr8k ten times.
    manifest = read("c.csv", "path,caption\na.jpg,x\na.jpg,y\n./a.jpg, x \nin/b.jpg,x\na.jpg,x\n")
    assert captions(manifest) == [("x", "y", "x", "x"), ("x",)]
    assert manifest.notes["captions_equal_to_others_of_their_image"] == 2
    assert captions(read("c.jsonl", '{"path": "a.jpg", "captions": ["x", "x"]}\n')) == [("x", "x")]


LISTS = [
    "frozenset({'A dog.', 'A cat.'})", "deque(['A dog.'])", "np.array(['A dog.'])", "set()",
    "array([], dtype=object)", "tf.Tensor([b'A dog.' b'A cat.'], shape=(2,), dtype=string)",
    "<StringArray>\n['A dog.']\nLength: 1, dtype: string", "<pyarrow.ListScalar: ['A dog.']>",
    'c("A dog.", "A cat.")', 'String["A dog.", "A cat."]', "List(A dog., A cat.)",
    'a:2:{i:0;s:6:"A dog.";i:1;s:6:"A cat.";}', r'"[\"A dog.\", \"A cat.\"]"',
    '"A dog.", "A cat."', '"A dog."\n"A cat."', "- A dog.\n- A cat.", "1. A dog.\n\n2. A cat.",
    '["A dog.", "A c', "{'A dog.'}", "[u'A dog.']", "{A dog,A cat}",
]  # fmt: skip
CAPTIONS = [
    "[music]", "(A man, waving) [laughter]", "(a dog, a cat)", "{a dog}", '("Stop") sign (red)',
    '["Hello"] on a sign', 'a man (in "red")', '"Hello", says the man.', "array (large) of dogs",
    "- A dog.", "1. A dog.", "<start> A dog [left]",
]  # fmt: skip
TEXTS = ["Two men, in 'green'.", 'Dog\'s "0", ü\\.', "A [b] (c)."]


@pytest.mark.parametrize(
    "cell",
    [
        *(write(TEXTS) for write in (json.dumps, repr)),
        *(str(kind(TEXTS)) for kind in (tuple, np.array)),
        *(repr(np.array(TEXTS, dtype)) for dtype in (str, object)),
        repr(list(np.array(TEXTS))),
        "{" + ",".join(map(json.dumps, TEXTS)) + "}",
    ],
)
def test_lists_in_a_cell(read: Read, cell: str) -> None:
    file = StringIO()
    csv.writer(file).writerows([("path", "caption"), ("a.jpg", cell), ("c d.jpg", "[music]")])
    manifest = read("c.csv", file.getvalue())
    assert captions(manifest) == [tuple(TEXTS), ("[music]",)]
    assert manifest.notes["caption_cells_split"] == 1


def test_lists_in_other_forms_are_refused_and_captions_like_them_kept() -> None:
    for cell in LISTS:
        with pytest.raises(RowFault, match="is like a list of texts"):
            texts_of(cell, "caption")
    assert texts_of("('A dog.',)", "caption") == ["A dog."]
    for cell in CAPTIONS:
        assert texts_of(cell, "caption") == [cell]


@pytest.mark.parametrize(("given", "mark"), [("|", " | "), ("\\n", "\n"), ("\n", "\n")])
def test_captions_joined_by_a_separator(read: Read, given: str, mark: str) -> None:
    data = f'path,caption\na.jpg,"one, two{mark}[three]{mark}"\n'
    manifest = read("c.csv", data, caption_separator=given)
    assert captions(manifest) == [("one, two", "[three]")]


def test_numbers_of_lines_are_no_ids_of_images(read: Read) -> None:
    table = "id,image,caption\n7,in/b.jpg,x\n8,a.jpg,y\n9,in/b.jpg,z\n10,in/b.jpg,w\n"
    manifest = read("c.csv", table)
    assert [(e.id, e.captions) for e in manifest] == [
        ("in/b.jpg", ("x", "z", "w")),
        ("a.jpg", ("y",)),
    ]
    assert manifest.notes["columns_that_differ_within_an_image"] == ["id"]
    with pytest.raises(DatasetError, match=r"line 4: image 'in/b\.jpg' has id '9' here"):
        read("c.csv", table, id_column="id")


def test_a_name_in_another_form_of_unicode_is_pointed_out(root: Path, read: Read) -> None:
    (root / "cafe\u0301.jpg").touch()
    with pytest.raises(DatasetError, match=r"not found below .*, but its name in .* NFD is there"):
        read("c.csv", "path,caption\ncaf\u00e9.jpg,x\n")


def test_splits_of_hashes_and_folders(root: Path, read: Read) -> None:
    manifest = read("c.csv", "path,caption\nin/b.jpg,x\n", split_by_folder=True)
    assert rows(manifest) == [("in/b.jpg", "in", ("x",))]
    names = [f"{i}.jpg" for i in range(60)]
    for name in names:
        (root / name).touch()
    manifest = read("c.csv", "path,caption\n" + "".join(f"{n},x\n" for n in names))
    assert {e.id: e.split for e in manifest.entries} == split_by_hash(names, SHARES)
    assert manifest.notes["split_by_hash_of_id"] == SHARES
