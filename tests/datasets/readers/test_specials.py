"""What is special to one reader: options, archives, subsets, and the real datasets."""

import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.coco import read_coco
from pipeline.datasets.readers.entities import read_entities
from pipeline.datasets.readers.flickr8k import read_flickr8k
from pipeline.datasets.readers.karpathy import _known_counts
from pipeline.datasets.readers.msvd import read_msvd
from pipeline.datasets.regions import read_phrases
from pipeline.store.hashing import sha256_of_file
from tests.datasets.readers.sources import SOURCES, png
from tests.project import SHARED

DATA = SHARED / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")


def read(name: str, root: Path, **options: Any) -> Manifest:
    if not (root / next(iter(SOURCES[name].files))).exists():
        SOURCES[name].write(root)
    return SOURCES[name].read(root, **options)


def test_coco_counts_licences_and_refuses_folders_of_no_file(tmp_path: Path) -> None:
    manifest = read("coco", tmp_path)
    assert manifest.licence == "BY (u): 1 images; BY-SA: 1 images; not stated: 1 images"
    (phrase,) = manifest.phrases or ()
    assert (phrase.id, phrase.phrase, phrase.types) == ("9#p0", "dog", ("animal",))
    assert (phrase.size, phrase.boxes) == ((10, 8), ((1.5, 2, 10, 5),))
    assert read("coco", tmp_path, split="dev").counts == {"dev": 2, "train": 1}
    assert read("coco", tmp_path, boxes=[]).phrases is None
    with pytest.raises(DatasetError, match=r"\['test'\].*no caption file"):
        read("coco", tmp_path, folders={"test": "x"})


@pytest.mark.parametrize(
    ("restval", "counts", "coco"),
    [
        ("train", {"test": 1, "train": 2}, {"train": 113_287}),
        ("leave-out", {"test": 1, "train": 1}, {"train": 82_783}),
        ("keep", {"test": 1, "restval": 1, "train": 1}, {"train": 82_783, "restval": 30_504}),
    ],
)
def test_restval(tmp_path: Path, restval: Any, counts: dict[str, int], coco: Any) -> None:
    manifest = read("karpathy", tmp_path, restval=restval)
    assert manifest.counts == counts
    assert (manifest.notes.get("restval_left_out") == 1) == (restval == "leave-out")
    assert _known_counts("coco", restval) == coco | {"val": 5000, "test": 5000}


def test_known_counts_are_asserted_unless_others_are_stated(tmp_path: Path) -> None:
    source = SOURCES["karpathy"].changed()
    source.files["d.json"]["dataset"] = "flickr30k"
    source.write(tmp_path)
    with pytest.raises(DatasetError, match="train: 2 found, 29000 expected; val: 0 found, 1014"):
        source.read(tmp_path)
    expect = {"train": 2, "val": 0, "test": 1}
    assert source.read(tmp_path, expect=expect).name == "flickr30k"
    del source.files["d.json"]["dataset"]
    source.write(tmp_path)
    assert source.read(tmp_path).name == "d"
    with pytest.raises(DatasetError, match="train: 1 found, 1200 expected"):
        read("msvd table", tmp_path, expect={})


def test_flickr8k_in_another_layout(tmp_path: Path) -> None:
    SOURCES["flickr8k"].write(tmp_path)
    tokens = (tmp_path / "annotations/F.token.txt").rename(tmp_path / "F.txt")
    tokens.write_bytes(b"\xef\xbb\xbf" + tokens.read_bytes().replace(b"\n", b"\r\n"))
    (tmp_path / "list").write_bytes(b"b.jpg\r\n")
    manifest = read_flickr8k(
        tmp_path, images=tmp_path / "images", captions=tokens, captions_per_image=2,
        splits={"test": tmp_path / "list"},
    )  # fmt: skip
    assert [(e.id, e.split, e.captions[0]) for e in manifest] == [
        ("b.jpg", "test", "b caption 0 .")
    ]
    assert manifest[0].caption_ids[1] == "b.jpg#1"


def test_a_clip_is_found_by_its_stem_if_that_is_clear(tmp_path: Path) -> None:
    read("msvd", tmp_path)
    (tmp_path / "clips/c_2_3.mp4").touch()
    with pytest.raises(DatasetError, match=r"may be c_2_3.avi or c_2_3.mp4"):
        read("msvd", tmp_path)
    with pytest.raises(DatasetError, match="test: 1 found, 2 expected"):
        read("msvd table", tmp_path, expect={"test": 2}, subset=True)


def test_phrases_and_boxes_of_entities(tmp_path: Path) -> None:
    manifest = read("entities", tmp_path)
    manifest.write(tmp_path / "out")
    first, second = read_phrases(tmp_path / "out", "train")
    assert (first.id, first.phrase, first.chain) == ("7_ab12.jpg#p0", "Two men", "1")
    assert (first.types, first.boxes, first.size) == (("people",), ((0, 0, 100, 50),), (100, 50))
    assert (second.types, second.boxes) == (("people", "other"), ((0, 10, 40, 50),))
    assert second.caption == "7_ab12.jpg#1"
    either = read("entities", tmp_path, boxes="any").phrases or ()
    assert either[0].boxes == ((0, 10, 40, 50), (60, 0, 100, 20))
    (tmp_path / "e/UNRELATED_CAPTIONS").write_text("7 1\n")
    manifest = read("entities", tmp_path)
    assert [phrase.phrase for phrase in manifest.phrases or ()] == ["A man"]
    assert manifest.notes["phrases_left_out"] == {"in unrelated captions": 3}


def test_photos_of_another_size_or_name(tmp_path: Path) -> None:
    read("entities", tmp_path)
    photo = tmp_path / "photos/7_ab12.jpg"
    photo.write_bytes(png(50, 200))
    with pytest.raises(DatasetError, match=r"50 x 200 pixels.*100 x 50; .*`scale_boxes=True`"):
        read("entities", tmp_path)
    scaled = read("entities", tmp_path, scale_boxes=True)
    boxes = [phrase.boxes for phrase in scaled.phrases or ()]
    assert boxes == [((0, 0, 50, 200),), ((0, 40, 20, 200),)]
    photo.rename(tmp_path / "photos/8.jpg")
    with pytest.raises(DatasetError, match="0 photos have a name that begins with 7"):
        read("entities", tmp_path)


def test_archives_of_entities(tmp_path: Path) -> None:
    """The same phrases from tar and zip; one that is damaged or too large is refused."""
    expected = read("entities", tmp_path).phrases
    with tarfile.open(tmp_path / "e.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "e", arcname="some/folder")
    packed = tmp_path / "e.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((tmp_path / "e").rglob("*")):
            archive.write(path, path.relative_to(tmp_path / "e"))
    for name in ("e.tar.gz", "e.zip"):
        assert read_entities(tmp_path / name, tmp_path / "photos").phrases == expected
    data = packed.read_bytes()
    for place in range(50, len(data) - 3, 23):
        packed.write_bytes(data[:place] + b"\xff\xff\xff" + data[place + 3 :])
        try:
            read_entities(packed, tmp_path / "photos")
        except DatasetError as error:
            if "\n" in str(error):
                pytest.fail(str(error))
    (tmp_path / "e.tar").write_bytes(b"no archive" * 100)
    for name in ("e.tar", "nowhere"):
        with pytest.raises(DatasetError, match=rf"{name} cannot be read .*expected"):
            read_entities(tmp_path / name, tmp_path / "photos")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Annotations/7.xml", bytes((1 << 25) + 1))
    with pytest.raises(DatasetError, match=r"Annotations/7.xml has 33,554,433 bytes"):
        read_entities(packed, tmp_path / "photos")


def test_boxes_of_a_table_in_both_forms(tmp_path: Path) -> None:
    csv = read("regions", tmp_path)
    names, *rows = SOURCES["regions"].files["r.csv"].replace('"a, cat"', "a; cat").splitlines()
    lines = []
    for row in rows:
        record = dict(zip(names.split(","), row.split(","), strict=True))
        record |= {side: float(record[side]) for side in ("x0", "y0", "x1", "y1")}
        lines.append(json.dumps(record).replace("a; cat", "a, cat"))
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    assert read("regions", tmp_path, table=tmp_path / "r.jsonl").phrases == csv.phrases
    found = csv.phrases or ()
    assert [p.id for p in found] == ["a.png#p0", "a.png#p1", "b.png#p0"]
    assert (found[1].chain, found[2].boxes) == ("1", ((1.5, 2, 3, 4),))
    (tmp_path / "r.csv").write_text("image,phrase,x0,y0,x1,y1\na.png,x,0,0,1,1\n")
    assert "split_by_hash_of_id" in read("regions", tmp_path).notes
    for name in ("r.xml", "r.csv"):
        (tmp_path / name).write_text("image,phrase\n")
        with pytest.raises(DatasetError, match=r"rename the file|missing columns: x0"):
            read("regions", tmp_path, table=tmp_path / name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"image":"a.png"', '"image":["a.png"]'),
        ('"size":[100,50]', '"size":[10]'),
        ('"boxes":[[', '"boxes":[[1e999,' + "9" * 400 + ",1,1],["),
        ('"types":["animal"]', '"types":' + "[" * 10**5 + "]" * 10**5),
    ],
    ids=["types", "sizes", "numbers", "depth"],
)
def test_a_damaged_line_of_phrases_is_named(tmp_path: Path, old: str, new: str) -> None:
    read("regions", tmp_path).write(tmp_path / "out")
    path, described = tmp_path / "out" / "regions.jsonl", tmp_path / "out" / "dataset.json"
    text, before = path.read_text(), sha256_of_file(path)
    assert old in text
    path.write_text(text.replace(old, new, 1))
    described.write_text(described.read_text().replace(before, sha256_of_file(path)))
    with pytest.raises(DatasetError, match=r"regions.jsonl: line 1: .*; prepare the dataset again"):
        read_phrases(tmp_path / "out")


@needs_data
def test_real_datasets(tmp_path: Path) -> None:
    coco = read_coco(DATA / "coco-sample/images", [("val", DATA / "coco-sample/captions.json")])
    assert (coco.counts, len(coco.captions().ids)) == ({"val": 76}, 380)
    assert "ShareAlike" in coco.licence
    flickr = read_flickr8k(DATA / "flickr8k", expect={"train": 5000, "dev": 1000})
    assert {len(e.captions) for e in flickr.entries} == {5}
    msvd = read_msvd(DATA / "clips/msvd", DATA / "clips/msvd_captions.tsv", subset=True)
    assert (msvd.counts, msvd.notes["clips_missing"]) == ({"train": 7, "test": 4}, 0)
    assert len(msvd.captions().texts) == 406
    photos = DATA / "flickr8k" / "original_res_sample"
    numbers = [path.name.partition("_")[0] for path in sorted(photos.iterdir())][:20]
    (tmp_path / "some.txt").write_text("\n".join(numbers))
    entities = read_entities(
        DATA / "entities" / "flickr30k_entities_6000.tar.gz", photos,
        splits={"train": tmp_path / "some.txt"},
    )  # fmt: skip
    assert entities.counts == {"train": 20}
    assert len(entities.phrases or ()) > 100
