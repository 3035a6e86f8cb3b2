"""`prepare` of objects in memory, and one dataset in every form: the same manifest."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.prepare import prepare
from tests.project import SHARED

COCO = SHARED / "data/coco-sample"
RECORDS = [
    {"image": "a.jpg", "text": "x"},
    {"image": "in/b.jpg", "text": "y"},
    {"image": "a.jpg", "text": "z"},
]
EXPECTED = [("a.jpg", ("x", "z")), ("in/b.jpg", ("y",))]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pics/in").mkdir(parents=True)
    for shade, name in enumerate(("a.jpg", "in/b.jpg")):
        Image.new("RGB", (2, 2), (shade, 9, 9)).save(tmp_path / "pics" / name)
    return tmp_path / "pics"


@pytest.fixture
def pandas() -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed")


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("datasets", reason="datasets is not installed")


def rows(manifest: Manifest) -> list[tuple[str, tuple[str, ...]]]:
    return [(entry.file, entry.captions) for entry in manifest.entries]


def test_iterables_of_mappings(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows(prepare(RECORDS, root=root)) == EXPECTED
    assert rows(prepare(iter(RECORDS), root=root)) == EXPECTED
    absolute = [{**record, "image": root / record["image"]} for record in RECORDS]
    manifest = prepare(absolute)
    assert (rows(manifest), manifest.image_root) == (EXPECTED, root)
    monkeypatch.chdir(root)
    assert rows(prepare(RECORDS)) == EXPECTED
    with pytest.raises(DatasetError, match=r"the records, record 2: .* not found"):
        prepare([RECORDS[0], {"image": "z.jpg", "text": "x"}], root=root)
    with pytest.raises(DatasetError, match="record 1: a mapping of columns was expected"):
        prepare([("a.jpg", "x")], root=root)
    assert rows(prepare({"a.jpg": ["x", "z"], "in/b.jpg": "y"}, root=root)) == EXPECTED
    for source in (3, b"c.csv"):
        with pytest.raises(DatasetError, match="a path, a pandas DataFrame, "):
            prepare(source, root=root)


def test_bytes_of_images(root: Path, tmp_path: Path) -> None:
    data = (root / "a.jpg").read_bytes()
    manifest = prepare([{"image": data, "caption": "x"}, {"image": data, "caption": "y"}], tmp_path)
    ((file, captions),) = rows(manifest)
    assert captions == ("x", "y")
    assert (tmp_path / "images" / file).read_bytes() == data
    with pytest.raises(DatasetError, match="record 2: the image is stored as bytes and those"):
        prepare([RECORDS[0], {"image": data, "text": "x"}], tmp_path, root=root)
    with pytest.raises(DatasetError, match=r"found Image, an image of Pillow .*; pass the"):
        prepare([{"image": Image.new("RGB", (2, 2)), "text": "x"}], tmp_path)


def test_data_frames(root: Path, pandas: Any, tmp_path: Path) -> None:
    frame = pandas.DataFrame(RECORDS, index=[7, 7, 9])
    manifest = prepare(frame, tmp_path / "out", root=root)
    assert (rows(manifest), manifest.name) == (EXPECTED, "out")
    frame["text2"] = ["p", None, float("nan")]
    frame["image_id"] = [5, 6, 5]
    frame["width"] = 1
    manifest = prepare(frame, root=root)
    assert [e.captions for e in manifest.entries] == [("x", "p", "z"), ("y",)]
    assert [e.id for e in manifest.entries] == ["5", "6"]
    assert manifest.notes["metadata_columns"] == ["width"]
    frame["text"] = [["one", "two"], ["y"], []]
    manifest = prepare(frame, root=root, caption_columns="text", skip_bad=True)
    assert rows(manifest) == [("a.jpg", ("one", "two")), ("in/b.jpg", ("y",))]
    with pytest.raises(DatasetError, match="the DataFrame: no column of captions"):
        prepare(frame[["image", "width"]], root=root)
    with pytest.raises(DatasetError, match="row 2: the path is missing"):
        prepare(pandas.DataFrame({"path": ["a.jpg", None], "text": ["x", "y"]}), root=root)


def test_datasets_of_hugging_face(root: Path, datasets: Any, tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_list(RECORDS)
    assert rows(prepare(dataset, root=root)) == EXPECTED
    # A column of images: files by their paths, without a copy.
    paths = [{**record, "image": str(root / record["image"])} for record in RECORDS]
    images = datasets.Dataset.from_list(paths).cast_column("image", datasets.Image())
    manifest = prepare(images, tmp_path / "by-path")
    assert (rows(manifest), manifest.image_root) == (EXPECTED, root)
    assert not (tmp_path / "by-path/images").exists()
    # Images that are stored as bytes: files below the dataset.
    inside = [
        {
            **record,
            "image": {"bytes": (root / record["image"]).read_bytes(), "path": record["image"]},
        }
        for record in RECORDS
    ]
    images = datasets.Dataset.from_list(inside).cast_column("image", datasets.Image())
    out = tmp_path / "inside"
    manifest = prepare(images.with_format("numpy"), out)
    assert (rows(manifest), manifest.image_root) == (EXPECTED, out / "images")
    for file, _ in EXPECTED:
        assert (out / "images" / file).read_bytes() == (root / file).read_bytes()
    assert rows(prepare(images.to_iterable_dataset(), out)) == EXPECTED
    # Beside a column of file names, whatever the column of images is called.
    named = images.add_column("filename", ["x", "y", "x"]).rename_column("image", "picture")
    named.to_parquet(tmp_path / "named.parquet")
    for source in (
        named,
        named.to_iterable_dataset(),
        named.to_pandas(),
        tmp_path / "named.parquet",
    ):
        assert rows(prepare(source, out, unpack=True)) == EXPECTED
    # Splits.
    both = datasets.DatasetDict(train=images.select([0]), validation=images.select([1]))
    assert prepare(both, out).counts == {"train": 1, "validation": 1}
    assert "split_by_hash_of_id" in prepare(datasets.DatasetDict(train=images), out).notes
    with pytest.raises(DatasetError, match="the Dataset: no column of captions"):
        prepare(dataset.remove_columns("text"), root=root)


def test_neither_pandas_nor_datasets_is_imported(root: Path) -> None:
    code = (
        "import sys; from pipeline.datasets.prepare import prepare; "
        f"prepare([{{'path': 'a.jpg', 'caption': 'x'}}], root={str(root)!r}); "
        "sys.exit(bool({'pandas', 'datasets', 'torch', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not COCO.is_dir(), reason="needs ../shared/data/coco-sample")
def test_one_dataset_in_every_form(
    pandas: Any, datasets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 76 photos of COCO: the manifest has the same bytes, and images are not changed."""
    document = json.loads((COCO / "captions.json").read_text())
    texts: dict[int, list[str]] = {}
    for annotation in document["annotations"]:
        texts.setdefault(annotation["image_id"], []).append(annotation["caption"])
    images = [(image["file_name"], texts[image["id"]]) for image in document["images"]]
    pairs = [(name, text) for name, captions in images for text in captions]

    frame = pandas.DataFrame(pairs, columns=["file_name", "caption"])
    frame.to_csv(tmp_path / "c.csv", index=False)
    frame.to_csv(tmp_path / "c.tsv", index=False, sep="\t", encoding="utf-16")
    frame.to_json(tmp_path / "c.json", orient="records")
    frame.to_json(tmp_path / "c.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "c.parquet")
    wide = pandas.DataFrame([[n, *t[:5]] for n, t in images])
    wide.columns = ["image", *(f"caption_{k}" for k in range(5))]
    folder = tmp_path / "imagefolder"
    folder.mkdir()
    for name, _ in images:
        (folder / name).symlink_to(COCO / "images" / name)
    (folder / "metadata.jsonl").write_bytes((tmp_path / "c.jsonl").read_bytes())
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for name, captions in images:
            tar.add(COCO / "images" / name, name)
            data = json.dumps({"captions": captions}).encode()
            member = tarfile.TarInfo(f"{Path(name).stem}.json")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    records = [
        {"image": str(COCO / "images" / name), "captions": captions} for name, captions in images
    ]
    by_path = datasets.Dataset.from_list(records).cast_column("image", datasets.Image())
    inside = [
        {"image": {"bytes": (COCO / "images" / name).read_bytes(), "path": name}, "text": captions}
        for name, captions in images
    ]
    stored = pyarrow.Table.from_pylist(inside)
    pyarrow.parquet.write_table(stored, tmp_path / "inside.parquet")
    by_bytes = datasets.Dataset.from_list(inside).cast_column("image", datasets.Image())

    root = COCO / "images"
    sources: dict[str, tuple[Any, Path | None]] = {
        "DataFrame": (frame, root),
        "wide DataFrame": (wide, root),
        "Dataset": (by_path, None),
        "Dataset with bytes": (by_bytes, None),
        "mappings": ([{"path": n, "caption": t} for n, t in pairs], root),
        "imagefolder": (folder, None),
        "webdataset": (tmp_path / "s.tar", None),
        "parquet with bytes": (tmp_path / "inside.parquet", None),
        **{s: (tmp_path / f"c.{s}", root) for s in ("csv", "tsv", "json", "jsonl", "parquet")},
    }
    written = {}
    for form, (source, where) in sources.items():
        out = tmp_path / "out" / form
        manifest = prepare(source, out, root=where, unpack=True)
        written[form] = (out / "manifest.jsonl").read_bytes()
        for entry in manifest.entries:
            stored_bytes = (manifest.image_root / entry.file).read_bytes()
            assert stored_bytes == (root / entry.file).read_bytes()
    assert len(written["csv"].splitlines()) == 76
    assert set(written.values()) == {written["csv"]}
