"""Images behind URLs give what files give, by few requests, or a reason."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

import pipeline
from pipeline.datasets.checks import DatasetError
from pipeline.images.decoding.decode import UnusableImage, read_bytes
from pipeline.images.reader_processes import ReaderProcesses
from pipeline.images.recipes import resolve_recipe
from pipeline.store.current.snapshot import file_identities
from pipeline.store.errors import FileReadError, WrongUsage
from pipeline.store.inner_files import in_parquet, in_tar, open_file
from pipeline.store.jobs.origins import missing_files, require_folder
from pipeline.store.objects import retry, sources
from pipeline.store.objects.urls import common_folder
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import MISSING, UNREADABLE
from pipeline.store.wording import without_secrets
from pipeline.web.serve.served_images import below
from tests.in_process import status_of
from tests.store.share.server import serving

RECIPE = "timm:test_resnet"
HOW: dict[str, Any] = {"recipe": RECIPE, "compute": pipeline.Compute("random:0")}
BLOCK = 1 << 15


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of several images, facts of this moment alone, and no pause before a retry."""
    sources._begin()
    monkeypatch.setattr(sources, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(retry, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[str]:
    """The URL of a folder in memory, removed afterwards."""
    files = fsspec.filesystem("memory")
    yield f"memory://{tmp_path.name}"
    files.rm(f"/{tmp_path.name}", recursive=True)


def png(seed: int) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 30 + seed, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def tar_of(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def photos(number: int, count: int = 12) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for seed in range(count):
        members |= {f"{number}-{seed:02}.png": png(seed), f"{number}-{seed:02}.txt": b"a photo"}
    return members


def write(url: str, data: bytes) -> None:
    with fsspec.open(url, "wb") as stream:
        stream.write(data)


def same_bytes(ours: Path, theirs: Path) -> bool:
    return all((ours / p.name).read_bytes() == p.read_bytes() for p in theirs.iterdir())


def test_tar_files_in_a_bucket(tmp_path: Path, s3: str, s3_requests: list[tuple[str, str]]) -> None:
    """As local ones, with one request a block, and after a change only the changed is computed."""
    url, here = f"{s3}/{tmp_path.name}/tars", tmp_path / "tars"
    here.mkdir()
    tars = {f"{number}.tar": tar_of(photos(number)) for number in range(2)}
    for name, data in tars.items():
        (here / name).write_bytes(data)
        write(f"{url}/{name}", data)
    blocks = sum(-(-len(data) // BLOCK) for data in tars.values())
    s3_requests.clear()

    def gets(least: int = blocks) -> bool:
        """Return whether there was about one request a block since the last call."""
        objects = [path for verb, path in s3_requests if verb == "GET" and "list-type" not in path]
        others = len(s3_requests) - len(objects)
        s3_requests.clear()
        return least <= len(objects) <= least + 4 and others <= 8

    how = ("--recipe", RECIPE, "--weights", "random:0")
    for name, where in (("ours", url), ("theirs", here)):
        made, pattern = tmp_path / name, f"{where}/{{0..1}}.tar"
        assert status_of("prepare", "folder", "--captions", pattern, "--out", made / "d") == 0
        if name == "ours":
            assert gets()
        assert status_of("extract", "--dataset", made / "d", *how, "--out", made / "f") == 0
        if name == "ours":
            # The last blocks of the preparation are still there.
            assert gets(blocks - sources._BLOCKS_KEPT)
        assert status_of("extract", "--images", pattern, *how, "--out", made / "plain") == 0
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert pipeline.read_manifest(ours / "d").image_root == Path(url)
    assert f'"image_root": "{url}"' in (ours / "d/dataset.json").read_text()
    of_both = [(made / "d/manifest.jsonl").read_bytes() for made in (ours, theirs)]
    assert of_both[0] == of_both[1]
    assert same_bytes(ours / "f", theirs / "f")
    assert same_bytes(ours / "plain", theirs / "plain")
    assert pipeline.read_features(ours / "plain").ids[0] == "0/0-00.png"

    s3_requests.clear()
    assert status_of("extract", "--dataset", ours / "d", *how, "--out", ours / "f") == 0
    assert not any(verb == "GET" and "list-type" not in path for verb, path in s3_requests)
    before = pipeline.read_features(ours / "f")[:]
    changed = png(5)[:-40] + bytes(40)
    assert tars["1.tar"].count(png(5)) == 1
    write(f"{url}/1.tar", tars["1.tar"].replace(png(5), changed))
    s3_requests.clear()
    assert status_of("extract", "--dataset", ours / "d", *how, "--out", ours / "f") == 3
    assert not any(path.endswith("0.tar") for verb, path in s3_requests if verb == "GET")
    features = pipeline.read_features(ours / "f")
    assert [name for name, *_ in features.failures()] == ["1-05.png"]
    assert (features.read(allow_failed=True) == before).all(axis=1).sum() == len(before) - 1


def test_a_folder_of_objects(tmp_path: Path, s3: str, s3_requests: list[tuple[str, str]]) -> None:
    url = f"{s3}/{tmp_path.name}"
    for seed in range(20):
        for where in (url, tmp_path / "here"):
            path = f"{where}/{'ab'[seed % 2]}/{seed}.png"
            Path(path).parent.mkdir(parents=True, exist_ok=True) if where != url else None
            write(path, png(seed))
    write(f"{url}/notes.txt", b"x")
    write(f"{url}/a/empty.png", b"")
    s3_requests.clear()
    manifest = pipeline.prepare(url, tmp_path / "d", name="d")
    assert len(manifest) == 21
    assert manifest.notes["files_of_other_kinds"] == 1
    # Of each of three folders, and of one to find a table.
    assert len(s3_requests) == 4
    assert all("list-type" in path for _, path in s3_requests)
    s3_requests.clear()
    files = manifest.files(manifest.packed)
    sizes = file_identities(files)[:, 0].tolist()
    assert sizes == [len(read_bytes(path)) for path in files]
    assert missing_files([*files, files[0].with_name("none.png")])[-2:] == [False, True]
    pipeline.extract(tmp_path / "d", tmp_path / "ours", **HOW)
    (tmp_path / "here/a/empty.png").touch()
    pipeline.extract(tmp_path / "here", tmp_path / "theirs", **HOW)
    ours, theirs = (pipeline.read_features(tmp_path / name) for name in ("ours", "theirs"))
    assert ours.ids[:] == theirs.ids[:]
    assert ours.failures() == theirs.failures()
    assert (ours.source_crc32 == theirs.source_crc32).all()


def test_tables_and_parquet_files(tmp_path: Path, memory: str) -> None:
    stream = io.BytesIO()
    images = [{"bytes": png(seed), "path": f"{seed}.png"} for seed in range(5)]
    table = pyarrow.table({"image": images, "caption": ["a photo"] * 5})
    pyarrow.parquet.write_table(table, stream, row_group_size=2)
    write(f"{memory}/t/train.parquet", stream.getvalue())
    inside = pipeline.prepare(f"{memory}/t/train.parquet", tmp_path / "inside")
    assert [read_bytes(path) for path in inside.files(inside.packed)] == [
        png(seed) for seed in range(5)
    ]
    unpacked = pipeline.prepare(f"{memory}/t/train.parquet", tmp_path / "out", unpack=True)
    assert unpacked.ids[:] == inside.ids[:]
    assert (tmp_path / "out/images/4.png").is_file()
    for seed in range(3):
        write(f"{memory}/images/{seed}.png", png(seed))
    text = "path,caption\n" + "".join(f"{seed}.png,of {seed}\n" for seed in range(3))
    write(f"{memory}/images/metadata.csv", text.encode())
    (tmp_path / "captions.csv").write_text(text.replace("1.png", f"{memory}/images/1.png"))
    there = pipeline.prepare(f"{memory}/images/", tmp_path / "there")
    here = pipeline.prepare(tmp_path / "captions.csv", root=f"{memory}/images")
    assert there.entries == here.entries == pipeline.read_manifest(tmp_path / "there").entries
    assert there.ids[:] == ["0.png", "1.png", "2.png"]
    (tmp_path / "captions.csv").write_text("path,caption\nnone.png,x\n")
    with pytest.raises(DatasetError, match=f"'none.png' not found below {memory}/images"):
        pipeline.prepare(tmp_path / "captions.csv", root=f"{memory}/images")
    with pytest.raises(DatasetError, match=f"{memory}/none.csv cannot be read .no such object"):
        pipeline.prepare(f"{memory}/none.csv")
    with pytest.raises(DatasetError, match=f"{memory}/none has no image file"):
        pipeline.prepare(f"{memory}/none")


def test_reasons(memory: str) -> None:
    tar = tar_of({"a.png": png(1), "b.png": png(2)})
    write(f"{memory}/x.tar", tar[: len(png(1)) + 600])
    write(f"{memory}/x.pq", b"PAR1 no more")
    for path, status, reason in (
        ("a.png", MISSING, "no such file"),
        ("none.tar/0+1/a.png", MISSING, "no such file"),
        (in_parquet("none.pq", 0, "image", "a.png"), MISSING, "no such file"),
        (in_parquet("x.pq", 0, "image", "a.png"), UNREADABLE, "damaged, or another one"),
        (in_tar("x.tar", 512, 10**6, "a.png"), UNREADABLE, r"ends after \d+ of its 1000000 bytes"),
        (in_tar("x.tar", 10**9, 1, "a.png"), UNREADABLE, "ends after 0 of its 1 bytes"),
    ):
        with pytest.raises(UnusableImage, match=reason) as caught:
            read_bytes(Path(memory, path))
        assert caught.value.status == status
    with pytest.raises(DatasetError, match=f"{memory}/x.tar is not an uncompressed tar file"):
        pipeline.prepare(f"{memory}/x.tar")
    require_folder(common_folder([Path(memory, "x.tar"), Path(memory, "y.tar")]))
    with pytest.raises(FileReadError, match=f"{memory}/none, the folder of the files"):
        require_folder(Path(memory, "none"))


def test_lost_connections_are_retried(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"{memory}/x.tar", tar_of({"a.png": png(1)}))
    write(f"{memory}/a.png", png(1))
    member = Path(memory, in_tar("x.tar", 512, len(png(1)), "a.png"))
    files, lost = fsspec.filesystem("memory"), iter([True, False])
    cat = type(files).cat_file

    def flaky(self: Any, path: str, start: int, end: int) -> bytes:
        whole = cat(self, path, start=start, end=end)
        return whole[: len(whole) // 2] if next(lost) and path.endswith("tar") else whole

    monkeypatch.setattr(type(files), "cat_file", flaky)
    assert read_bytes(member) == png(1)
    sources._begin()
    lost = iter([True] * retry.ATTEMPTS)
    with pytest.raises(FileReadError, match=r"x.tar: the file ended at byte .*5 attempts in a row"):
        read_bytes(member)

    def down(self: Any, path: str, start: int, end: int) -> bytes:
        raise ConnectionResetError("reset by peer")

    monkeypatch.setattr(type(files), "cat_file", down)
    with pytest.raises(FileReadError, match=r"a.png: ConnectionResetError.*rerun the command"):
        read_bytes(Path(memory, "a.png"))


def test_a_forbidden_bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends a run, as a file without permission does."""
    files = fsspec.filesystem("s3")

    async def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(type(files), "_call_s3", refuse)
    for read in (lambda: read_bytes(Path(s3, "a.png")), lambda: pipeline.prepare(f"{s3}/folder")):
        with pytest.raises(FileReadError, match="Access Denied; check the URL"):
            read()


def test_no_password_is_accepted_or_shown(tmp_path: Path) -> None:
    for url in ("ftp://user:hidden@host/x.tar", "https://host/a.png?signature=hidden/x"):
        with pytest.raises(FileReadError, match="put credentials where") as caught:
            read_bytes(Path(url))
        assert "hidden" not in str(caught.value)
        assert without_secrets(url) in str(caught.value)
        assert status_of("prepare", "folder", "--captions", url, "--out", tmp_path / "d") == 1
    with pytest.raises(WrongUsage, match="all in one bucket"):
        pipeline.prepare("s3://{0..1}/x.tar")


def test_a_web_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tar file is read by ranges; 404 is a missing image, and 503 none."""
    monkeypatch.setenv("no_proxy", "*")
    # Its server decodes no names.
    (tmp_path / "a%20photo.tar").write_bytes(tar_of(photos(0)))
    (tmp_path / "a.png").write_bytes(png(1))
    with serving(tmp_path) as server:
        manifest = pipeline.prepare(f"{server.url}/a%20photo.tar")
        assert [read_bytes(path) for path in manifest.files(manifest.packed)][1] == png(1)
        assert read_bytes(Path(server.url, "a.png")) == png(1)
        for name in ("none.png", "none.tar/0+1/a.png"):
            with pytest.raises(UnusableImage, match="no such file"):
                read_bytes(Path(server.url, name))
        assert missing_files([Path(server.url, name) for name in ("a.png", "b.png")])[1]
        server.faults = [lambda request: request.plain(503, b"")]
        for path in (Path(server.url, "a.png"), Path(server.url, "b.tar/0+1/a.png")):
            with pytest.raises(FileReadError, match="HTTP 503; 5 attempts in a row failed"):
                read_bytes(path)
        with pytest.raises(FileReadError, match="a web server does not list its files"):
            pipeline.prepare(server.url)


def test_a_changed_object_is_read_again(memory: str) -> None:
    member = Path(memory, in_tar("x.tar", 0, 4, "a.png"))
    write(f"{memory}/x.tar", b"abcdefgh")
    first = file_identities([member, member])
    assert read_bytes(member) == b"abcd"
    assert (first[0] == first[1]).all()
    write(f"{memory}/x.tar", b"ABCDEFGH")
    assert (file_identities([member]) != first[0]).any()
    assert read_bytes(member) == b"ABCD"
    with open_file(Path(memory, "x.tar")) as stream:
        assert (stream.seek(-3, io.SEEK_END), stream.read(), stream.read(1)) == (5, b"FGH", b"")
    assert below(Path(memory), member) == member


def test_reader_processes_share_what_is_fetched(memory: str) -> None:
    recipe = resolve_recipe(RECIPE)
    tar = tar_of({"a.png": png(1), "b.png": b"no image"})
    write(f"{memory}/x.tar", tar)
    start = tar.index(png(1))
    paths = [
        Path(memory, in_tar("x.tar", start, len(png(1)), "a.png")),
        Path(memory, "none.png"),
        Path(memory, in_tar("x.tar", tar.index(b"no image"), 8, "b.png")),
    ]
    read = ReaderProcesses(recipe, recipe.crop)
    first, second, third = read(paths, Stopwatch())
    assert first.windows is not None
    assert first.status == 0
    assert (second.windows, second.status, third.status) == (None, MISSING, UNREADABLE)
