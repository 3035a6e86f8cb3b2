"""Flickr30k Entities: the photos' phrases and boxes, and what is wrong with files."""

import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.entities import read_entities
from pipeline.datasets.regions import read_phrases
from tests.project import SHARED

XML = """<annotation><filename>7.jpg</filename>
<size><width>100</width><height>50</height><depth>3</depth></size>
<object><name>1</name><name>2</name><bndbox>
<xmin>1</xmin><ymin>11</ymin><xmax>40</xmax><ymax>50</ymax></bndbox></object>
<object><name>1</name><bndbox>
<xmin>61</xmin><ymin>1</ymin><xmax>100</xmax><ymax>20</ymax></bndbox></object>
<object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>
</annotation>"""
TEXT = (
    "[/EN#1/people Two men] on [/EN#3/scene a road] see [/EN#0/notvisual nothing] .\n"
    "[/EN#2/people/other A man] waits ."
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "entities"
    for path, text in (
        ("Annotations/7.xml", XML),
        ("Sentences/7.txt", TEXT),
        ("train.txt", "7\n"),
        ("UNRELATED_CAPTIONS", "# format: <imageID> <sentence number>\n"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (100, 50)).save(tmp_path / "photos" / "7_ab12.jpg")
    return root


def read(root: Path, **options: Any) -> Manifest:
    return read_entities(root, root.parent / "photos", **options)


def test_phrases_and_boxes(root: Path, tmp_path: Path) -> None:
    manifest = read(root)
    (entry,) = manifest.entries
    assert (entry.id, entry.split) == ("7_ab12.jpg", "train")
    assert entry.captions == ("Two men on a road see nothing .", "A man waits .")
    assert manifest.notes["phrases_left_out"] == {"not visual": 1, "scene or no box": 1}
    manifest.write(tmp_path / "out")
    first, second = read_phrases(tmp_path / "out", "train")
    assert (first.id, first.phrase, first.chain) == ("7_ab12.jpg#p0", "Two men", "1")
    assert (first.types, first.boxes, first.size) == (("people",), ((0, 0, 100, 50),), (100, 50))
    assert (second.types, second.boxes) == (("people", "other"), ((0, 10, 40, 50),))
    assert second.caption == "7_ab12.jpg#1"
    either = read(root, several="any").phrases or ()
    assert either[0].boxes == ((0, 10, 40, 50), (60, 0, 100, 20))


def test_archives_say_the_same(root: Path, tmp_path: Path) -> None:
    expected = read(root).phrases
    with tarfile.open(tmp_path / "e.tar.gz", "w:gz") as tar:
        tar.add(root, arcname="some/folder")
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as archive:
        for path in root.rglob("*"):
            archive.write(path, path.relative_to(root))
    for name in ("e.tar.gz", "e.zip"):
        assert read_entities(tmp_path / name, tmp_path / "photos").phrases == expected


def test_unrelated_captions_are_left_out(root: Path) -> None:
    (root / "UNRELATED_CAPTIONS").write_text("7 1\n")
    manifest = read(root)
    assert [phrase.phrase for phrase in manifest.phrases or ()] == ["A man"]
    assert manifest.notes["phrases_left_out"] == {"in unrelated captions": 3}


def test_photos_of_another_size(root: Path, tmp_path: Path) -> None:
    Image.new("RGB", (50, 200)).save(tmp_path / "photos" / "7_ab12.jpg")
    with pytest.raises(DatasetError, match=r"50 x 200 pixels.*100 x 50; .*`scale=True`"):
        read(root)
    boxes = [phrase.boxes for phrase in read(root, scale=True).phrases or ()]
    assert boxes == [((0, 0, 50, 200),), ((0, 40, 20, 200),)]


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("Sentences/7.txt", "A man] waits", "A man waits", r"7.txt, line 2: the mark at '\[/EN#2"),
        ("Sentences/7.txt", "EN#2", "EN#9", r"caption 2: the chain 9 of 'A man' is not in"),
        ("Annotations/7.xml", "<xmax>40", "<xmax>101", r"object 0 .*1 11 101 50.* is outside"),
        ("Annotations/7.xml", "<xmax>40", "<xmax>0", r"object 0 \(chain 1, 2\): .* has no area"),
        ("Annotations/7.xml", "<ymin>11", "<ymin>0", r"lies outside its image of 100 x 50"),
        ("Annotations/7.xml", "<xmax>40", "<xmax>4.5", r"<xmax> is '4.5'; a whole number"),
        ("Annotations/7.xml", "</annotation>", "", r"7.xml is no XML: .*line 8"),
        ("Annotations/7.xml", "<annotation>", "<!DOCTYPE a []><annotation>", "defines entities"),
        ("train.txt", "7", "7\n8", r"train.txt, line 2: image 8 has no file in"),
        ("train.txt", "7", "7\n7", r"line 2: duplicate image 7, first in .*line 1"),
    ],
)
def test_faults_name_the_file_and_the_line(
    root: Path, file: str, old: str, new: str, complaint: str
) -> None:
    path = root / file
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DatasetError, match=complaint):
        read(root)


def test_photos_that_are_not_there(root: Path, tmp_path: Path) -> None:
    (tmp_path / "photos" / "7_ab12.jpg").rename(tmp_path / "photos" / "8.jpg")
    with pytest.raises(DatasetError, match="0 photos have a name that begins with 7"):
        read(root)
    with pytest.raises(DatasetError, match="nowhere cannot be read"):
        read_entities(tmp_path / "nowhere", tmp_path / "photos")


def test_a_file_that_is_no_archive_is_refused_in_one_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "e.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(DatasetError, match=r"e.tar cannot be read .*expected") as refused:
        read_entities(tmp_path / "e.tar", root.parent / "photos")
    assert "\n" not in str(refused.value)


def test_a_damaged_zip_file_is_refused(root: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "e.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(root / "Annotations/7.xml", "Annotations/7.xml")
    data = bytearray((tmp_path / "e.zip").read_bytes())
    for place in range(50, 250):
        (tmp_path / "e.zip").write_bytes(data[:place] + b"\xff\xff\xff" + data[place + 3 :])
        with pytest.raises(DatasetError):
            read_entities(tmp_path / "e.zip", root.parent / "photos")


def test_an_archive_that_unpacks_to_gigabytes_is_refused(root: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "e.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Annotations/7.xml", bytes((1 << 25) + 1))
    with pytest.raises(DatasetError, match=r"Annotations/7.xml has 33,554,433 bytes"):
        read_entities(tmp_path / "e.zip", root.parent / "photos")


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
def test_original_photos_agree_with_their_files(tmp_path: Path) -> None:
    photos = SHARED / "data" / "flickr8k" / "original_res_sample"
    numbers = [path.name.partition("_")[0] for path in sorted(photos.iterdir())][:20]
    (tmp_path / "some.txt").write_text("\n".join(numbers))
    manifest = read_entities(
        SHARED / "data" / "entities" / "flickr30k_entities_6000.tar.gz",
        photos,
        splits={"train": tmp_path / "some.txt"},
    )
    assert manifest.counts == {"train": 20}
    assert len(manifest.phrases or ()) > 100
