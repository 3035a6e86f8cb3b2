"""The manifest: written and read alike, and anything changed or unsafe refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.checks import DatasetError, check_counts, check_relative
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import DATASET_FILE, MANIFEST_FILE, Manifest, read_manifest
from pipeline.datasets.phrases import RegionPhrase
from pipeline.datasets.splits import split_by_hash
from pipeline.store.errors import WrongUsage


def manifest(root: Path, **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "name": "mine",
        "image_root": root,
        "entries": (
            ImageEntry("b.jpg", "in/b.jpg", "train", ("Ein Käfer – ‘käfer’.", 'two\t"quotes" \\')),
            ImageEntry("a.jpg", "a.jpg", "val", ("a\u00a0dog 🐕",)),
            ImageEntry("c", "c.jpg", "train", ()),
        ),
        "licence": "none",
        "source": "made up",
        "notes": {"n": 1},
    }
    return Manifest(**(fields | changes))


def test_round_trip(tmp_path: Path) -> None:
    """With the same bytes each time; a folder can be moved with its images."""
    for name in ("x", "y"):
        manifest(tmp_path / name / "images").write(tmp_path / name)
    for file in (MANIFEST_FILE, DATASET_FILE):
        assert (tmp_path / "x" / file).read_bytes() == (tmp_path / "y" / file).read_bytes()
    before = manifest(tmp_path / "there" / "images")
    (tmp_path / "x").rename(tmp_path / "there")
    assert read_manifest(tmp_path / "there") == before
    assert before.counts == {"train": 2, "val": 1}
    assert [e.id for e in before.select("train")] == ["b.jpg", "c"]
    assert before.entries[0].caption_ids == ("b.jpg#0", "b.jpg#1")


def test_images_behind_a_link_are_named_as_in_the_project(tmp_path: Path) -> None:
    """The same on every machine; where the folder itself is behind a link, by their true place."""
    for folder in ("disk/photos", "disk/work", "project"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "project/photos").symlink_to(tmp_path / "disk/photos")
    (tmp_path / "project/work").symlink_to(tmp_path / "disk/work")
    for folder, stated in (
        ("data", "../photos"),
        ("work", "../photos"),
        ("work/a", "../../photos"),
    ):
        manifest(tmp_path / "project/photos").write(tmp_path / "project" / folder)
        written = json.loads((tmp_path / "project" / folder / DATASET_FILE).read_text())
        assert written["image_root"] == stated
        root = read_manifest(tmp_path / "project" / folder).image_root
        assert root.resolve() == tmp_path / "disk/photos"


@pytest.mark.parametrize("name", ["a|b", "a\nb", "../a", ""])
def test_a_name_is_one_cell_of_a_table(name: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="it names files and rows of tables"):
        manifest(tmp_path, name=name).write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_dataset_of_clips(tmp_path: Path) -> None:
    """It says so, has any number of captions, and is no dataset of pictures."""
    entry = ImageEntry("a.mp4", "a.mp4", "train", tuple(f"caption {k}" for k in range(41)))
    before = manifest(tmp_path / "clips", entries=(entry,), media="clips")
    before.write(tmp_path / "out")
    assert json.loads((tmp_path / "out" / DATASET_FILE).read_text())["clips"] == 1
    clips = read_manifest(tmp_path / "out")
    assert clips == before
    assert clips.require("clips", "a sound recipe", "prepare clips") is clips
    assert len(clips.captions().ids) == 41
    with pytest.raises(DatasetError, match=r"propose needs a dataset of images, but 'mine' is one"):
        clips.require("images", "pipeline propose", "prepare images")
    with pytest.raises(DatasetError, match="clip 'a': split"):
        manifest(tmp_path, entries=(ImageEntry("a", "a", "x y", ()),), media="clips")


def test_tampering_and_damage_are_found(tmp_path: Path) -> None:
    manifest(tmp_path).write(tmp_path)
    file, described = tmp_path / MANIFEST_FILE, tmp_path / DATASET_FILE
    good, metadata = file.read_bytes(), described.read_text()
    file.write_bytes(good.replace(b"train", b"value", 1))
    with pytest.raises(DatasetError, match="does not match"):
        read_manifest(tmp_path)
    file.write_bytes(good)
    values = json.loads(metadata)
    assert "media" not in values
    without = {key: value for key, value in values.items() if key != "name"}
    for changed, message in (
        (without, "corrupt.*name"),
        (values | {"media": "books"}, "media: Expected one of 'images', 'clips', found 'books'"),
    ):
        described.write_text(json.dumps(changed))
        with pytest.raises(DatasetError, match=message):
            read_manifest(tmp_path)
    described.unlink()
    with pytest.raises(DatasetError, match="not a prepared dataset"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x.jpg", "a/../../x", "a\\b", "C:/x", "a\nb", " a", "a\x00"]
)
def test_unsafe_paths_are_refused(tmp_path: Path, path: str) -> None:
    assert check_relative(path)
    for entry in (ImageEntry("a", path, "train", ("x",)), ImageEntry(path, "a", "train", ("x",))):
        with pytest.raises(DatasetError, match="must stay below"):
            manifest(tmp_path, entries=(entry,))


@pytest.mark.parametrize("caption", ["", "  ", "a\nb", "a\u2028b", "a\x00b", "a\ud800"])
def test_captions_that_are_no_line_of_text_are_refused(tmp_path: Path, caption: str) -> None:
    with pytest.raises(DatasetError, match="caption 0"):
        manifest(tmp_path, entries=(ImageEntry("a", "a", "train", (caption,)),))


def test_ids_splits_and_emptiness(tmp_path: Path) -> None:
    twice = (ImageEntry("a", "a", "train", ("x",)), ImageEntry("a", "b", "val", ("y",)))
    with pytest.raises(DatasetError, match=r"more than once.*'a'"):
        manifest(tmp_path, entries=twice)
    with pytest.raises(DatasetError, match="no image"):
        manifest(tmp_path, entries=())
    with pytest.raises(DatasetError, match="not a plain name"):
        manifest(tmp_path, entries=(ImageEntry("a", "a", "../x", ("x",)),))
    with pytest.raises(DatasetError, match=r"no split 'test'.*train \(2 images\)"):
        manifest(tmp_path).select("test")


@pytest.mark.parametrize("number", ["2", "-1", "\u00b2", "9" * 5000])
def test_the_caption_of_a_phrase_exists(tmp_path: Path, number: str) -> None:
    entry = manifest(tmp_path).entries[0]
    box = (0.0, 0.0, 1.0, 1.0)
    phrase = RegionPhrase(f"{entry.id}#p0", entry.id, "x", (), None, f"{entry.id}#0", (box,))
    assert manifest(tmp_path, phrases=(phrase,)).phrases == (phrase,)
    with pytest.raises(DatasetError, match="its image has no caption"):
        manifest(tmp_path, phrases=(replace(phrase, caption=f"{entry.id}#{number}"),))


def test_counts_are_asserted() -> None:
    check_counts("mine", {"train": 3, "val": 1}, {"train": 3})
    with pytest.raises(DatasetError, match="train: 3 found, 4 expected; test: 0 found, 1 expected"):
        check_counts("mine", {"train": 3}, {"train": 4, "test": 1})


def test_split_by_hash_keeps_its_shares_and_moves_nothing() -> None:
    shares = {"train": 0.8, "val": 0.1, "test": 0.1}
    ids = [f"image-{i}" for i in range(4000)]
    few, many = split_by_hash(ids[:100], shares), split_by_hash(ids, shares)
    assert all(many[i] == few[i] for i in few)
    for split, share in shares.items():
        assert abs(sum(s == split for s in many.values()) / 4000 - share) < 0.02
