"""Images inside of tar and Parquet files give what unpacked ones give, or a reason."""

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

import pipeline
from pipeline.datasets.checks import DatasetError
from pipeline.datasets.plain_images import plain_images
from pipeline.images.decoding.decode import UnusableImage, read_bytes
from pipeline.store.inner_files import bytes_of, in_parquet, in_tar, name_of, outer_file
from pipeline.store.shards.format import MISSING, REFUSED, UNREADABLE
from pipeline.web.serve.served_images import below
from tests.in_process import status_of

RECIPE = "timm:test_resnet"
Write = Callable[[Path, dict[str, bytes]], None]


@pytest.fixture
def photos() -> dict[str, bytes]:
    """Files of several sizes, of which one is not an image."""
    rng, files = np.random.default_rng(0), {}
    for number in range(7):
        stream = io.BytesIO()
        pixels = rng.integers(0, 256, (30 + number, 40, 3), np.uint8)
        Image.fromarray(pixels).save(stream, "png")
        files[f"{number % 2}/{number}.png"] = stream.getvalue()
    return files | {"0/bad.png": b"not an image"}


def write_tars(folder: Path, photos: dict[str, bytes]) -> None:
    """Write the photos and a caption of each to two tar files."""
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for name, data in photos.items():
                if name.startswith(str(number)):
                    for path, content in ((name, data), (name[:-3] + "txt", b"a photo")):
                        member = tarfile.TarInfo(path)
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))


def write_parquet(folder: Path, photos: dict[str, bytes]) -> None:
    """Write the photos to a file of three row groups."""
    images = [{"bytes": data, "path": name} for name, data in photos.items()]
    table = pyarrow.table({"image": images, "caption": ["a photo"] * len(images)})
    pyarrow.parquet.write_table(table, folder / "metadata.parquet", row_group_size=3)


@pytest.mark.parametrize("write", [write_tars, write_parquet])
def test_features_are_those_of_the_unpacked_images(
    tmp_path: Path, photos: dict[str, bytes], write: Write
) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", photos)
    sets = []
    for unpack in (False, True):
        dataset, out = tmp_path / f"{unpack}/data", tmp_path / f"{unpack}/out"
        manifest = pipeline.prepare(tmp_path / "in", dataset, unpack=unpack)
        assert (dataset / "images").exists() == unpack
        pipeline.extract(dataset, out, recipe=RECIPE, compute=pipeline.Compute("random:0"))
        sets.append((manifest, out))
    (there, ours), (unpacked, theirs) = sets
    assert there.ids[:] == unpacked.ids[:]
    assert {*there.ids} == {*photos}
    for name in sorted(path.name for path in theirs.iterdir()):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    assert pipeline.read_features(ours).failures()[0][0] == "0/bad.png"
    assert pipeline.verify(ours, images_of=tmp_path / "False/data").faults == []


def test_a_changed_tar_file_is_read_again(tmp_path: Path, photos: dict[str, bytes]) -> None:
    del photos["0/bad.png"]
    write_tars(tmp_path, photos)
    manifest, out = pipeline.prepare(tmp_path, tmp_path / "data"), tmp_path / "out"

    def extract() -> int:
        before = pipeline.read_features(out)[:] if out.exists() else None
        pipeline.extract(
            tmp_path / "data", out, recipe=RECIPE, compute=pipeline.Compute("random:0")
        )
        after = pipeline.read_features(out)[:]
        return 0 if before is None else int((before != after).any(axis=1).sum())

    assert extract() == extract() == 0
    changed = next(iter(photos))
    path = manifest.image_root / manifest[changed].file
    other = photos["1/1.png"][: len(photos[changed])].ljust(len(photos[changed]), b"\0")
    whole = Path(outer_file(path)).read_bytes()
    Path(outer_file(path)).write_bytes(whole.replace(photos[changed], other))
    assert bytes_of(path) == other
    assert extract() == 1


def test_tar_files_without_captions_are_images(
    tmp_path: Path, photos: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        chosen = {name: data for name, data in photos.items() if name[0] == str(number)}
        with tarfile.open(tmp_path / f"s-{number}.tar", "w") as tar:
            for name, data in {**chosen, "notes.txt": b"x"}.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    monkeypatch.chdir(tmp_path)
    how = ("--recipe", RECIPE, "--weights", "random:0", "--out")
    assert status_of("extract", "--images", "s-{0..1}.tar", *how, "one") == 3
    assert status_of("extract", "--images", "s-0.tar", "s-1.tar", *how, "two") == 3
    features = pipeline.read_features("one")
    assert (features.read(allow_failed=True) == pipeline.read_features("two")[:])[features.ok].all()
    for number in range(2):
        with tarfile.open(f"s-{number}.tar") as tar:
            tar.extractall(f"photos/s-{number}", filter="data")
    pipeline.extract("photos", "files", recipe=RECIPE, compute=pipeline.Compute("random:0"))
    of_files = pipeline.read_features("files")
    assert {*features.ids} == {*of_files.ids} == {f"s-{name[0]}/{name}" for name in photos}
    rows = of_files.read(features.ids, allow_failed=True)
    np.testing.assert_allclose(rows, features[:], rtol=1e-5, atol=1e-5)
    with pytest.raises(DatasetError, match="name tar files alone, or none"):
        plain_images(["s-0.tar", "photos"], print)
    with tarfile.open("none.tar", "w"):
        pass
    with pytest.raises(DatasetError, match="has no image"):
        plain_images(["none.tar"], print)
    with tarfile.open("link.tar", "w") as tar:
        link = tarfile.TarInfo("a.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(DatasetError, match=r"'a.png' is a link"):
        plain_images(["link.tar"], print)


def test_names_in_a_tar_file_are_unique_and_in_several_not(tmp_path: Path) -> None:
    for number, names in enumerate((["a.png", "a.png"], ["a.png"])):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as tar:
            for data, name in enumerate(names):
                member = tarfile.TarInfo(name)
                member.size = 1
                tar.addfile(member, io.BytesIO(bytes([data])))
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "1.tar", tmp_path / "b/1.tar")
    with pytest.raises(DatasetError, match=r"0.tar: 'a.png' is the name of another image before"):
        plain_images([tmp_path / "0.tar"], print)
    both = plain_images([tmp_path / "b/1.tar", tmp_path / "1.tar"], print)
    assert both.ids[:] == ["b/1/a.png", "1/a.png"]


def test_reasons(tmp_path: Path, photos: dict[str, bytes]) -> None:
    write_tars(tmp_path, photos)
    write_parquet(tmp_path, photos)
    tar, table = str(tmp_path / "0.tar"), str(tmp_path / "metadata.parquet")
    whole = Path(tar).stat().st_size
    assert read_bytes(Path(in_tar(tar, 0, whole, "x"))) == Path(tar).read_bytes()
    assert read_bytes(Path(in_tar(tar, 5, 0, "x"))) == b""
    for path, status, reason in (
        (in_tar(tar, whole - 3, 4, "x"), UNREADABLE, "ends after 3 of its 4 bytes"),
        (in_tar(tar, 10**17, 4, "x"), UNREADABLE, "ends after 0 of its 4 bytes"),
        (in_tar(tar, 0, 2**30 + 1, "x"), REFUSED, "more than the limit"),
        (in_tar(f"{tar}.tar", 0, 1, "x"), MISSING, "no such file"),
        (in_parquet(table, 8, "image", "x"), UNREADABLE, "has 8 rows, so none is number 8"),
        (in_parquet(table, 0, "no", "x"), UNREADABLE, "damaged, or another one"),
        (in_parquet(table, 0, "caption", "x"), UNREADABLE, "no bytes in its column 'caption'"),
        (in_parquet(str(tmp_path / "no.pq"), 0, "image", "x"), MISSING, "no such file"),
    ):
        with pytest.raises(UnusableImage, match=reason) as caught:
            read_bytes(Path(path))
        assert caught.value.status == status
    Path(table).write_bytes(b"PAR1 no more")
    with pytest.raises(UnusableImage, match="damaged, or another one"):
        read_bytes(Path(in_parquet(table, 0, "image", "x")))


@pytest.mark.parametrize("path", ["a.tar", "a.tar/b.jpg", "a+b@c/1+2/x", "x.tar/1+/b", "a.pq/1@/b"])
def test_other_paths_are_files(path: str) -> None:
    assert outer_file(path) == name_of(path) == path


def test_names_in_any_case_and_of_any_column() -> None:
    for path, outer in (
        (in_tar("a/b.TAR", 1, 2, "c/d.jpg"), "a/b.TAR"),
        (in_tar("a.tar/b.tar", 1, 2, "c.tar/3+4/d.jpg"), "a.tar/b.tar"),
        (in_parquet("t.parquet", 3, "an/odd@ column%", "c.jpg"), "t.parquet"),
    ):
        assert outer_file(path) == outer
        assert name_of(path) in ("c/d.jpg", "c.tar/3+4/d.jpg", "c.jpg")


def test_an_outer_file_stays_below_the_root(tmp_path: Path, photos: dict[str, bytes]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write_tars(root, photos)
    shutil.move(root / "1.tar", tmp_path / "1.tar")
    (root / "1.tar").symlink_to(tmp_path / "1.tar")
    inner = Path(in_tar(str(root / "0.tar"), 1, 2, "x.jpg"))
    assert below(root, inner) == inner.resolve()
    with pytest.raises(UnusableImage, match="leaves the image root"):
        below(root, Path(in_tar(str(root / "1.tar"), 1, 2, "x.jpg")))
