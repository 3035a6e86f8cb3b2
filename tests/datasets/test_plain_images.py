"""Plain image files as a dataset: ids, counts, and what is refused."""

import os
from pathlib import Path

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.plain_images import images_of, plain_images, read_list


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three images in two folders, a text, and a hidden file."""
    for name in ("b.JPG", "sub/ü 日本.png", "sub/a.png", "notes.md", ".hidden.png"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path / "photos"


def test_the_ids_of_a_folder_are_relative_to_it(photos: Path) -> None:
    lines: list[str] = []
    manifest = plain_images([photos], lines.append)
    assert list(manifest.packed.ids) == ["b.JPG", "sub/a.png", "sub/ü 日本.png"]
    assert (manifest.name, manifest.image_root) == ("photos", photos.resolve())
    assert lines == [
        f"3 images below {photos}; left out: 1 hidden files and folders, 1 files of other kinds"
    ]
    assert not manifest.packed.num_captions.any()


def test_the_ids_of_files_are_relative_to_their_common_folder(photos: Path) -> None:
    lines: list[str] = []
    given = [photos / "sub" / "a.png", photos / "missing.jpg", photos / "notes.md", photos / "sub"]
    manifest = plain_images(given, lines.append)
    # In the given order; a missing file and one of any suffix keep their place.
    ids = ["sub/a.png", "missing.jpg", "notes.md", "sub/ü 日本.png"]
    assert list(manifest.packed.ids) == ids
    assert [manifest.path_by_id[i] for i in ids] == [photos / i for i in ids]
    assert lines[1:] == [
        f"4 images; ids are paths relative to {photos}",
        "1 of the files were listed before and count once",
    ]
    (only,) = plain_images([photos / "b.JPG"], lines.append).packed.ids
    assert only == "b.JPG"


def test_a_source_is_a_dataset_a_manifest_a_folder_or_a_list(photos: Path, tmp_path: Path) -> None:
    prepared = Manifest("m", photos, [ImageEntry("x", "b.JPG", "train", ("a b",))], "", "", {})
    prepared.write(tmp_path / "prepared")
    assert list(images_of(str(tmp_path / "prepared"), print).packed.ids) == ["x"]
    assert images_of(prepared, print) is prepared
    assert len(images_of(photos, print).entries) == 3
    assert list(images_of(photos / "b.JPG", print).packed.ids) == ["b.JPG"]
    assert list(images_of([str(photos / "b.JPG")], print).packed.ids) == ["b.JPG"]
    with pytest.raises(DatasetError, match="nowhere is not a prepared dataset"):
        images_of(tmp_path / "nowhere", print)
    # An interrupted preparation is not taken for a folder of images.
    (tmp_path / "prepared" / "dataset.json").unlink()
    with pytest.raises(DatasetError, match="is not a prepared dataset"):
        images_of(tmp_path / "prepared", print)


def test_what_cannot_be_a_dataset_is_refused_by_name(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no image is named"):
        plain_images([], print)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="has no image file"):
        plain_images([tmp_path / "empty"], print)
    (tmp_path / "empty" / "line\nbreak.png").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"no image whose name can be an id.*control characters"):
        plain_images([tmp_path / "empty"], print)
    lines: list[str] = []
    named = [tmp_path / "empty" / "line\nbreak.png", tmp_path / "empty" / "a.png"]
    assert list(plain_images(named, lines.append).ids) == ["a.png"]
    assert lines[-1] == "left out: the name 'line\\nbreak.png' has control characters"


def test_a_list_has_one_path_per_line(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes("\ufeffa b.jpg\r\n\n/ü.png".encode())
    assert read_list(tmp_path / "list.txt") == [Path("a b.jpg"), Path("/ü.png")]


def test_a_list_from_a_pipe_leaves_out_names_that_are_not_utf_8(photos: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, os.fsencode(f"{photos}/b.JPG\n{photos}/caf\udce9.jpg\n{photos}/sub/a.png\n"))
    os.close(writing)
    lines: list[str] = []
    listed = read_list(Path(f"/dev/fd/{reading}"))
    assert list(plain_images(listed, lines.append).ids) == ["b.JPG", "sub/a.png"]
    assert lines[-1] == r"left out: the name 'caf\udce9.jpg' is not UTF-8"
    os.close(reading)
