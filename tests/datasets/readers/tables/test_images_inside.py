"""Tar shards, Parquet, and folders with metadata: images found, in place or unpacked."""

import hashlib
import io
import json
import os
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
from pipeline.datasets.readers.tables import parquet, tar_shards
from pipeline.datasets.readers.tables.tar_shards import expand_braces
from pipeline.store.inner_files import bytes_of


def image(shade: int, kind: str = "png") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (2, 2), (shade, 0, 0)).save(stream, kind)
    return stream.getvalue()


def shard(path: Path, members: dict[str, bytes | str | tarfile.TarInfo]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
                continue
            data = content if isinstance(content, bytes) else content.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def rows(manifest: Manifest) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(e.id, e.file, e.captions) for e in manifest.entries]


def test_samples_of_a_shard(tmp_path: Path) -> None:
    one, two = image(1), image(2, "jpeg")
    members: dict[str, Any] = {
        "./b/0.png": one,
        "a.txt": "a text,\nof two lines\n",
        "./b/0.json": json.dumps({"captions": ["x", "y"], "id": "k", "width": 2, "url": None}),
        "a.jpg": two,
        "a.json": json.dumps({"caption": "left out", "path": "/etc/passwd"}),
        "a.cls": "3",
        "._a.jpg": "of a Mac",
    }
    members["folder"] = special("folder", tarfile.DIRTYPE)
    path = shard(tmp_path / "s.tar", members)
    out = tmp_path / "out"
    manifest = prepare(path, out, unpack=True)
    assert rows(manifest) == [
        ("k", "b/0.png", ("x", "y")),
        ("a.jpg", "a.jpg", ("a text, of two lines",)),
    ]
    assert (out / "images/b/0.png").read_bytes() == one
    assert (out / "images/a.jpg").read_bytes() == two
    assert manifest.image_root == out / "images"
    assert manifest.notes["members_ignored"] == {".cls": 1}
    assert manifest.notes["metadata_columns"] == ["width"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert manifest.notes["source_files"] == [{"file": "s.tar", "sha256": digest}]
    # Again: what is there already is kept, what was damaged is written again.
    (out / "images/a.jpg").write_bytes(b"half")
    kept = (out / "images/b/0.png").stat().st_ino
    before = (out / "manifest.jsonl").read_bytes()
    assert rows(prepare(path, out, unpack=True)) == rows(manifest)
    assert (out / "images/b/0.png").stat().st_ino == kept
    assert (out / "images/a.jpg").read_bytes() == two
    assert (out / "manifest.jsonl").read_bytes() == before


def test_shards_of_braces_and_of_a_folder(tmp_path: Path) -> None:
    for n in range(3):
        shard(tmp_path / f"s-{n:02d}.tar", {f"{n}.png": image(n), f"{n}.txt": f"text {n}"})
    expected = [(f"{n}.png", f"{n}.png", (f"text {n}",)) for n in range(3)]
    for source in (tmp_path / "s-{00..02}.tar", tmp_path):
        assert rows(prepare(source, tmp_path / "out", unpack=True)) == expected
        found = [(entry.id, entry.captions) for entry in prepare(source)]
        assert found == [(name, captions) for name, _, captions in expected]
    with pytest.raises(DatasetError, match=r"s-03.tar cannot be read"):
        prepare(tmp_path / "s-{00..03}.tar", tmp_path / "out")
    with pytest.raises(DatasetError, match="omit root"):
        prepare(tmp_path / "s-00.tar", tmp_path / "out", root=tmp_path)
    with pytest.raises(DatasetError, match="expected clips, in a folder"):
        prepare(tmp_path / "s-00.tar", media="clips")
    shard(tmp_path / "s-02.tar", {"0.png": image(7), "0.txt": "another image of that name"})
    for unpack in (False, True):
        with pytest.raises(DatasetError, match=r"s-02.tar, sample 1: '0.png' is the name of anot"):
            prepare(tmp_path, tmp_path / "out", unpack=unpack)
    shard(tmp_path / "s-02.tar", {"0.png": image(0), "0.txt": "another text"})
    assert prepare(tmp_path)["0.png"].captions == ("text 0", "another text")


def test_braces() -> None:
    assert list(map(str, expand_braces(Path("a-{08..11}.tar")))) == [
        "a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"
    ]  # fmt: skip
    assert len(expand_braces(Path("{0..2}/{0..3}.tar"))) == 12
    for pattern in ("{3..2}.tar", "{0..999999999}.tar"):
        with pytest.raises(DatasetError, match="numbers; expected 1 to"):
            expand_braces(Path(pattern))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.txt": "x"}, "sample 1: the sample 'a' has no image"),
        ({"a.png": b"1"}, "no column of captions"),
        ({"a.png": b"1", "a.jpg": b"2"}, "'a.png' and 'a.jpg' are images of one sample"),
        ({"../a.png": b"1", "../a.txt": "x"}, "'../a.png' leaves the image root"),
        ({"/a.png": b"1", "/a.txt": "x"}, "'/a.png' leaves the image root"),
        ({"a.png": special("a.png", tarfile.SYMTYPE, "/etc/passwd")}, "'a.png' is a link"),
        ({"a.png": special("a.png", tarfile.LNKTYPE, "b.png")}, "'a.png' is a link"),
        ({"a.png": special("a.png", tarfile.CHRTYPE)}, "'a.png' is a link, a device"),
        ({"a.txt": special("a.txt", tarfile.FIFOTYPE)}, "'a.txt' is a link, a device"),
        ({"a.png": b"1", "a.json": "{"}, "'a.json': JSON is malformed"),
        ({"a.png": b"1", "a.txt": b"\xff"}, "'a.txt': 'utf-8' codec"),
        ({"a.png": b"1", "a.txt": "x", "a.text": "y"}, "'a.text' is the second of its sample"),
        ({"a.png": b"1", "a.txt": "", "a.json": "null"}, "the caption is empty"),
        ({"a.1.png": b"1", "a.1.txt": "x"}, "'a.1' has a dot, at which the name of a sample ends"),
        ({"a.png": b"1", "a.json": "3"}, "captions: Expected `str`, found 3"),
        ({"a.png": b"1" * 101, "a.txt": "x"}, "'a.png' has 101 bytes, over 100"),
        ({"a.png": b"1", "a.txt": "x" * 11}, "'a.txt' has 11 bytes, over 10"),
    ],
)
def test_what_shards_must_not_hold(
    tmp_path: Path, members: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_shards, "MAX_BYTES", 100)
    monkeypatch.setattr(tar_shards, "_MAX_TEXT_BYTES", 10)
    good: dict[str, Any] = {"good.png": b"1", "good.txt": "x"}
    path = shard(tmp_path / "s.tar", {**members, **good})
    for unpack in (False, True):
        with pytest.raises(DatasetError, match=message):
            prepare(path, tmp_path / "out", unpack=unpack)
    assert not (tmp_path / "out/dataset.json").exists()
    assert rows(prepare(path, tmp_path / "out", skip_bad=True, unpack=True)) == [
        ("good.png", "good.png", ("x",))
    ]
    (kept,) = prepare(path, skip_bad=True)
    assert (kept.id, bytes_of(tmp_path / kept.file)) == ("good.png", b"1")
    written = {p.relative_to(tmp_path) for p in tmp_path.rglob("*.png")}
    assert written <= {Path("out/images") / name for name in ("a.png", "good.png")}


def test_damaged_shards(tmp_path: Path) -> None:
    path = shard(tmp_path / "s.tar", {"a.png": os.urandom(5000), "a.txt": "x"})
    whole = path.read_bytes()
    second = 512 + 5120
    cut = (whole[:3000], whole[:second], whole[:second] + b"x" + whole[second + 1 :])
    for data in (*cut, b"not a tar file" * 100, b"\x1f\x8b" + whole):
        path.write_bytes(data)
        with pytest.raises(DatasetError, match="is not an uncompressed tar file, or is corrupt"):
            prepare(path, tmp_path / "out")


def table(path: Path, /, **columns: list[Any]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in several batches."""
    monkeypatch.setattr(parquet, "_ROWS", 2)
    names = [f"{n}.jpg" for n in range(5)]
    for name in names:
        (tmp_path / name).touch()
    texts = [[f"one {n}", f"two {n}"] for n in range(5)]
    path = table(tmp_path / "t.parquet", image=names, captions=texts, width=list(range(5)))
    manifest = prepare(path)
    assert rows(manifest) == [(n, n, (f"one {k}", f"two {k}")) for k, n in enumerate(names)]
    assert manifest.notes["metadata_columns"] == ["width"]
    table(path, path=["0.jpg", None, "1.jpg"], caption=["x", "y", None], split=["val"] * 3)
    with pytest.raises(DatasetError, match=r"row 2: the path is missing; row 3: the cap"):
        prepare(path)
    table(path, a=["x"], b=["y"])
    with pytest.raises(DatasetError, match=r"t.parquet: no column of paths among 'a', 'b'"):
        prepare(path)
    path.write_bytes(b"PAR1 and more")
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        prepare(path)


def test_parquet_with_images_as_hugging_face_stores_them(tmp_path: Path) -> None:
    first, second = image(1), image(2, "jpeg")
    images = [
        {"bytes": first, "path": "a.png"},
        {"bytes": second, "path": "a.png"},
        {"bytes": second, "path": None},
        {"bytes": first, "path": "a.png"},
    ]
    path = table(tmp_path / "t.parquet", image=images, text=["x", "y", "z", "w"])
    manifest = prepare(path, tmp_path / "out", unpack=True)
    hashed = hashlib.sha256(second).hexdigest()[:16]
    assert [(e.file, e.captions) for e in manifest.entries] == [
        ("a.png", ("x", "w")), (f"a-{hashed}.jpg", ("y",)), (f"{hashed}.jpg", ("z",))
    ]  # fmt: skip
    assert (tmp_path / "out/images/a.png").read_bytes() == first
    there = prepare(path)
    assert [(e.id, e.captions) for e in there] == [(e.id, e.captions) for e in manifest]
    assert [bytes_of(there.image_root / e.file) for e in there] == [first, second, second]
    table(path, image=[b"not an image", first], text=["x", "y"])
    with pytest.raises(DatasetError, match="row 1: the bytes are not an image"):
        prepare(path)
    bad = [{"bytes": first, "path": "../a.png"}, {"bytes": first, "path": None}]
    table(path, image=bad, text=["x", "y"])
    for unpack in (False, True):
        with pytest.raises(DatasetError, match=r"row 1: the image's name '../a.png' leaves"):
            prepare(path, tmp_path / "out", unpack=unpack)
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_image_folders(tmp_path: Path, suffix: str) -> None:
    def write(folder: Path, names: list[str]) -> None:
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
        path, lines = (
            folder / f"metadata.{suffix}",
            ["file_name,text", *(f"{n},of {n}" for n in names)],
        )
        if suffix == "csv":
            path.write_text("\n".join(lines))
        elif suffix == "jsonl":
            records = [{"file_name": name, "text": f"of {name}"} for name in names]
            path.write_text("\n".join(map(json.dumps, records)))
        else:
            table(path, file_name=names, text=[f"of {name}" for name in names])

    flat = tmp_path / "flat"
    write(flat, ["b.jpg", "a.jpg"])
    expected = [("b.jpg", "b.jpg", ("of b.jpg",)), ("a.jpg", "a.jpg", ("of a.jpg",))]
    for source, root in ((None, flat), (flat, None), (flat, flat)):
        assert rows(prepare(source, root=root)) == expected
    assert [e.file for e in prepare(flat, root=tmp_path)] == ["flat/b.jpg", "flat/a.jpg"]
    for split in ("train", "validation", "test"):
        write(tmp_path / "splits" / split, ["a.jpg", f"{split}.jpg"])
    manifest = prepare(tmp_path / "splits")
    assert manifest.counts == {"train": 2, "validation": 2, "test": 2}
    assert manifest.entries[2].file == "validation/a.jpg"
    for name in ("metadata.csv", "metadata.jsonl"):
        (flat / name).touch()
    with pytest.raises(DatasetError, match=r"has metadata.csv and .*state which"):
        prepare(flat)


def test_a_folder_of_images_alone(tmp_path: Path) -> None:
    for name in ("b/2.jpg", "a.png", "b/1.jpg", ".hidden.jpg", "notes.txt", "b/bad\n.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    manifest = prepare(tmp_path)
    assert rows(manifest) == [(name, name, ()) for name in ("a.png", "b/1.jpg", "b/2.jpg")]
    assert manifest.notes["hidden_files_and_folders"] == 1
    assert manifest.notes["files_of_other_kinds"] == 1
    assert manifest.notes["first_of_these_names"] == (r"'b/bad\n.jpg' has control characters",)
    (tmp_path / "a.png").unlink()
    assert prepare(tmp_path, skip_bad=True, split_by_folder=True).counts == {"b": 2}
