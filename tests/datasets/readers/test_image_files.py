"""Image files below a folder: order, what is left out, and links."""

import os
from pathlib import Path

import pytest
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.image_files import SUFFIXES, image_files
from pipeline.images.decoding.decode import FORMATS


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_order_suffixes_and_what_is_left_out(tmp_path: Path) -> None:
    names = ["b.JPG", "a/z.png", "a.jpg", "a/b c/ü 日本.webp", "Z.jpeg", "a-b.gif"]
    touch(tmp_path, *names, ".hidden.jpg", ".git/x.jpg", "a/notes.txt", "a/.DS_Store", "jpg")
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    found = image_files(tmp_path)
    assert found.files == tuple(sorted(names))
    assert found.left_out == {"hidden_files_and_folders": 3, "files_of_other_kinds": 3}


def test_links(tmp_path: Path) -> None:
    root = tmp_path / "root"
    touch(tmp_path, "outside/x.jpg", "root/in/a.jpg")
    (root / "same.jpg").symlink_to("in/a.jpg")
    (root / "dead.jpg").symlink_to("in/none.jpg")
    (root / "self.jpg").symlink_to("self.jpg")
    (root / "loop").symlink_to(".")
    (tmp_path / "by-link").symlink_to(root)
    expected = image_files(root)
    assert expected.files == ("dead.jpg", "in/a.jpg", "same.jpg", "self.jpg")
    assert expected.left_out == {"links_to_folders": 1}
    assert image_files(tmp_path / "by-link") == expected
    for name, target in (("file.jpg", "../outside/x.jpg"), ("folder", "../outside")):
        (root / name).symlink_to(target)
        with pytest.raises(DatasetError, match=f"1 links that lead outside, first .'{name}'"):
            image_files(root)
        (root / name).unlink()


def test_no_folder_and_no_image(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be read"):
        image_files(tmp_path / "none")
    touch(tmp_path, "a.txt", ".b.jpg")
    with pytest.raises(DatasetError, match=r"no image file .1 files of other kinds, 1 hidden."):
        image_files(tmp_path)


def test_every_format_that_is_decoded_has_its_suffixes() -> None:
    known = {suffix for suffix, name in Image.registered_extensions().items() if name in FORMATS}
    assert known - SUFFIXES <= {".pfm"}
