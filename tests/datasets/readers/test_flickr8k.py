"""Flickr8k's files: what is read from them, and every fault named with its line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.flickr8k import read_flickr8k
from tests.project import SHARED

_DATA = SHARED / "data" / "flickr8k"
TOKENS = [f"{name}.jpg#{k}\t{name} caption {k} ." for name in "dcba" for k in range(5)]
"""Lines 1-5 of the token file belong to d.jpg, 6-10 to c.jpg, and so on."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("images", "annotations", "splits"):
        (tmp_path / folder).mkdir()
    for name in "abc":
        (tmp_path / "images" / f"{name}.jpg").touch()
    write(tmp_path, TOKENS)
    (tmp_path / "splits" / "dev.txt").write_text("b.jpg\n")
    (tmp_path / "splits" / "train.txt").write_text("c.jpg\na.jpg\n\n")
    return tmp_path


def write(root: Path, lines: list[str]) -> None:
    (root / "annotations" / "F.token.txt").write_text("\n".join(lines) + "\n")


def test_reads_the_splits_in_order(root: Path) -> None:
    manifest = read_flickr8k(root, expect={"train": 2, "dev": 1})
    assert [(e.id, e.split) for e in manifest.entries] == [
        ("c.jpg", "train"),
        ("a.jpg", "train"),
        ("b.jpg", "dev"),
    ]
    assert manifest.entries[0].captions == tuple(f"c caption {k} ." for k in range(5))
    assert manifest.entries[1].caption_ids[4] == "a.jpg#4"
    assert manifest.notes["images_in_no_split"] == 1
    assert manifest.notes["images_in_no_split_first"] == ["d.jpg"]


def test_captions_are_joined_by_number_not_by_line(root: Path) -> None:
    expected = read_flickr8k(root).entries
    write(root, TOKENS[::-1])
    assert read_flickr8k(root).entries == expected


def test_other_layouts_and_windows_files(root: Path) -> None:
    (root / "F.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(TOKENS).encode())
    (root / "list").write_bytes(b"b.jpg\r\n")
    manifest = read_flickr8k(
        root, images=root / "images", captions=root / "F.txt", splits={"test": root / "list"}
    )
    assert [(e.id, e.split, e.captions[0]) for e in manifest.entries] == [
        ("b.jpg", "test", "b caption 0 .")
    ]


def replaced(number: int, line: str) -> list[str]:
    return [*TOKENS[: number - 1], line, *TOKENS[number:]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (TOKENS[:7] + TOKENS[8:], r"F.token.txt: image 'c.jpg' \(first.*line 6\) lacks.*c.jpg#2"),
        (replaced(8, TOKENS[6]), r"line 8: duplicate caption c.jpg#1, first in line 7"),
        (replaced(8, "c.jpg#5\tx"), r"line 8: caption c.jpg#5 has a number beyond #4"),
        (replaced(8, "c.jpg#x\tx"), r"line 8: .*NAME#NUMBER<TAB>CAPTION"),
        (replaced(8, "c.jpg#2 x"), r"line 8: .*NAME#NUMBER<TAB>CAPTION"),
        (replaced(8, "c.jpg#2\t  "), r"line 8: c.jpg#2: the caption is empty"),
    ],
)
def test_faults_of_the_token_file(root: Path, lines: list[str], message: str) -> None:
    write(root, lines)
    with pytest.raises(DatasetError, match=message):
        read_flickr8k(root)


def _split(text: str) -> Callable[[Path], object]:
    return lambda root: (root / "splits" / "train.txt").write_text(text)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_split("c.jpg\na.jpg\nc.jpg\n"), r"train.txt, line 3: duplicate image 'c.jpg'"),
        (_split("b.jpg\n"), r"dev.txt, line 1: duplicate image 'b.jpg'.*train.txt, line 1"),
        (_split("c.jpg\nx.jpg\n"), r"train.txt, line 2: image 'x.jpg' has no caption"),
        (_split("d.jpg\n"), r"train.txt, line 1: image 'd.jpg' not found below"),
        (lambda root: (root / "annotations" / "F.token.txt").unlink(), r"0 files named \*token\*"),
        (lambda root: (root / "annotations" / "x.token").touch(), r"2 files named \*token\*"),
        (lambda root: (root / "splits").rename(root / "s"), r"no split file"),
    ],
)
def test_faults_of_the_layout(root: Path, fault: Callable[[Path], object], message: str) -> None:
    fault(root)
    with pytest.raises(DatasetError, match=message):
        read_flickr8k(root)


def test_another_encoding_and_other_counts(root: Path) -> None:
    with pytest.raises(DatasetError, match="dev: 1 found, 1000 expected"):
        read_flickr8k(root, expect={"dev": 1000})
    text = "\n".join(replaced(3, "d.jpg#2\tcaf\u00e9"))
    (root / "annotations" / "F.token.txt").write_bytes(text.encode("latin-1"))
    with pytest.raises(DatasetError, match=r"line 3: byte 12 of the line is not UTF-8"):
        read_flickr8k(root)


@pytest.mark.skipif(not _DATA.is_dir(), reason="needs the photos of Flickr8k in ../shared")
def test_real_flickr8k() -> None:
    manifest = read_flickr8k(_DATA, expect={"train": 5000, "dev": 1000})
    assert manifest.counts == {"train": 5000, "dev": 1000}
    assert {len(e.captions) for e in manifest.entries} == {5}
