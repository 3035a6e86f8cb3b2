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
        with pytest.raises(DatasetError, match=f"1 link to a place outside, first .'{name}'"):
            image_files(root)
        followed = image_files(root, follow_links=True)
        assert {*followed.files} - {*expected.files} == {f"{name}/x.jpg".replace(".jpg/x", "")}
        (root / name).unlink()
    (root / "gone.jpg").symlink_to("/no/such/folder/x.jpg")  # a file that is missing
    assert {*image_files(root).files} == {*expected.files, "gone.jpg"}


def test_links_into_the_project_and_the_cache_of_dvc_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project" / "photos"
    touch(tmp_path, "project/raw/a.jpg", "cache/files/md5/00/x.jpg", "elsewhere/b.jpg")
    root.mkdir()
    (root / "raw").symlink_to("../raw")
    (root / "cached.jpg").symlink_to("../../cache/files/md5/00/x.jpg")
    (root / "up").symlink_to("..")  # a circle
    with pytest.raises(DatasetError, match="3 links to a place outside"):
        image_files(root)
    settings = tmp_path / "project" / ".dvc"
    settings.mkdir()
    (settings / "config").write_text("[core]\n    remote = x\n['remote \"x\"']\n    url = /y\n")
    (settings / "config.local").write_text("[cache]\n    dir = ../../cache\n    type = symlink\n")
    assert image_files(root).files == ("cached.jpg", "raw/a.jpg")
    assert image_files(root).left_out == {"links_to_folders": 1}
    # As `dvc cache dir --global` writes it.
    (settings / "config.local").rename(settings / "config.off")
    # A user whom the system does not list, as of `docker run --user`, has no settings.
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(DatasetError, match=r"first .'cached\.jpg'"):
        image_files(root)
    touch(tmp_path, "home/dvc/config")
    (tmp_path / "home/dvc/config").write_text(f"\ufeff[cache]\n    dir = {tmp_path / 'cache'}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    assert image_files(root).files == ("cached.jpg", "raw/a.jpg")
    (root / "b.jpg").symlink_to(tmp_path / "elsewhere" / "b.jpg")
    with pytest.raises(DatasetError, match=r"first .'b\.jpg'"):
        image_files(root)


def test_a_bad_name_costs_itself(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "b\\c.jpg", "d\ne.jpg", os.fsdecode(b"\xff.jpg"))
    found = image_files(tmp_path)
    assert found.files == ("a.jpg",)
    assert found.unusable == (
        "'b\\\\c.jpg' has a backslash (use forward slashes)",
        "'d\\ne.jpg' has control characters",
        "'\\udcff.jpg' is not UTF-8",
    )


def test_no_folder_and_no_image(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be read"):
        image_files(tmp_path / "none")
    touch(tmp_path, "a.txt", ".b.jpg")
    with pytest.raises(DatasetError, match=r"no image file .1 files of other kinds, 1 hidden."):
        image_files(tmp_path)


def test_every_format_that_is_decoded_has_its_suffixes() -> None:
    known = {suffix for suffix, name in Image.registered_extensions().items() if name in FORMATS}
    assert known - SUFFIXES <= {".pfm"}
