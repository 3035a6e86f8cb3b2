"""Push and pull against folders, and against a server that breaks, stalls and lies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.datasets.manifest import ImageEntry, Manifest
from pipeline.errors import PipelineError
from pipeline.shards.build.arrays import write_features
from pipeline.shards.exchange import contents, http_remote, output, remote
from pipeline.shards.exchange.contents import OtherSet
from pipeline.shards.exchange.download import DamagedCopy
from pipeline.shards.exchange.folder_remote import FolderRemote
from pipeline.shards.exchange.pull import pull
from pipeline.shards.exchange.push import push
from pipeline.shards.exchange.remote import ExchangeError, NotThere, RemoteError
from pipeline.shards.exchange.spans import feature_spans
from pipeline.shards.feature_set import FeatureSet, MissingRows
from pipeline.shards.format import DamagedShard, OtherShard
from pipeline.shards.tools.dataset_card import write_card
from pipeline.shards.tools.verify import verify
from tests.project import PROJECT, Recorder
from tests.shards.exchange.server import Misbehaving, Request, once, serving
from tests.shards.factories import build, ids
from tests.shards.factories import contents as files_of

ROWS, DIM, ROWS_PER_SHARD = 60, 2048, 20
IDS = [f"bild/é{7 * row % ROWS}.jpg" for row in range(ROWS)]
SHARDS = [f"shard-{number:05d}-of-00003.h5" for number in range(3)]
FAILED = 3
Lie = Callable[[Misbehaving], None]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once, no proxy is asked, and no process started for HDF5."""
    for module in (contents, output):
        monkeypatch.setattr(module, "require_unbroken", lambda paths, features: None)
    monkeypatch.setattr(remote, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(http_remote, "READ_SECONDS", 5.0)
    monkeypatch.setenv("no_proxy", "*")


def make(folder: Path, name: str = "made", compress: bool = False, seed: int = 0) -> FeatureSet:
    """Write a set of 60 rows in three shards, one row failed, with a card and an encoder."""
    array = np.random.default_rng(seed).standard_normal((ROWS, DIM)).astype(np.float32)
    array[:, 1::2] = 0
    status = np.zeros(ROWS, int)
    status[FAILED] = 1
    write_features(
        folder, IDS, array, recipe={"name": name}, status=status, dataset="d",
        rows_per_shard=ROWS_PER_SHARD, compress=compress,
    )  # fmt: skip
    write_card(folder, licence="CC0")
    encoder = folder.with_name(f"{folder.name}.encoder")
    encoder.mkdir(exist_ok=True)
    (encoder / "encoder.json").write_text("{}")
    return FeatureSet(folder)


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a set, `made/set`, that was pushed to `srv/set`."""
    folder = tmp_path_factory.mktemp("pushed")
    push(make(folder / "made" / "set").folder, folder / "srv" / "set")
    return folder


@pytest.fixture
def features(tmp_path: Path, pushed: Path) -> FeatureSet:
    shutil.copytree(pushed / "made", tmp_path / "made")
    return FeatureSet(tmp_path / "made" / "set")


@pytest.fixture
def server(tmp_path: Path, pushed: Path) -> Iterator[Misbehaving]:
    """Serves `srv`, to which the set was pushed as `set`."""
    shutil.copytree(pushed / "srv", tmp_path / "srv")
    with serving(tmp_path / "srv") as server:
        yield server


def same_files(folder: Path, source: Path, left: tuple[str, ...] = ()) -> None:
    """Assert that two sets and their encoders are the same bytes."""
    for suffix in ("", ".encoder"):
        there = files_of(folder.with_name(folder.name + suffix))
        assert {n: b for n, b in there.items() if n not in left} == files_of(
            source.with_name(source.name + suffix)
        )


@pytest.mark.parametrize("compress", [False, True])
def test_a_set_goes_out_and_comes_back_in_the_same_bytes(tmp_path: Path, compress: bool) -> None:
    features = make(tmp_path / "set", compress=compress)
    there = tmp_path / "shared" / "x"
    sent = push(features.folder, there)
    same_files(there, features.folder, ("files.json",))
    assert verify(there).faults == []
    assert sent.moved == sum(map(len, files_of(there).values())) + 2
    assert push(features.folder, f"file://{there}").moved == 0
    for out in ("back", "back"):
        come = pull(f"file://{there}", tmp_path / out)
        same_files(tmp_path / out, features.folder)
    assert come.moved < 4000
    shard = tmp_path / "back" / SHARDS[1]
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    come = pull(there, tmp_path / "back")
    same_files(tmp_path / "back", features.folder)
    assert shard.stat().st_size <= come.moved < shard.stat().st_size + 4000
    assert {path.suffix for path in (tmp_path / ".work").iterdir()} == {".lock"}


@pytest.mark.parametrize("compress", [False, True])
def test_rows_come_alone_in_the_order_asked_for(tmp_path: Path, compress: bool) -> None:
    features = make(tmp_path / "set", compress=compress)
    push(features.folder, tmp_path / "shared")
    asked = [IDS[row] for row in (41, FAILED, 5, 4, 59)]
    come = pull(tmp_path / "shared", tmp_path / "some", ids=asked)
    some = FeatureSet(tmp_path / "some")
    assert some.ids == asked
    np.testing.assert_array_equal(some.read(asked, True), features.read(asked, True))
    assert some.failures() == features.failures()
    assert some.index.header == features.index.header
    assert verify(tmp_path / "some").faults == []
    assert (tmp_path / "some.encoder" / "encoder.json").is_file()
    row = DIM * 4
    most = 5 * (row if not compress else 1 << 16) + 3 * 8_000 + ROWS * 120
    assert come.moved < most < come.size * (1 if not compress else 9)
    before = files_of(tmp_path / "some")
    again = pull(tmp_path / "shared", tmp_path / "some", ids=asked)
    assert (files_of(tmp_path / "some"), again.moved < come.moved - row) == (before, True)
    with pytest.raises(MissingRows, match="'nowhere'"):
        pull(tmp_path / "shared", tmp_path / "none", ids=[IDS[0], "nowhere"])


def dataset(folder: Path, splits: dict[str, list[str]], captions: int = 0) -> Path:
    """Write a dataset of these images."""
    texts = tuple("ab"[:captions])
    entries = [ImageEntry(i, i, split, texts) for split, ids in splits.items() for i in ids]
    Manifest("d", folder, tuple(entries), "free", "drawn", {}).write(folder)
    return folder


def test_the_rows_of_a_split(tmp_path: Path, features: FeatureSet) -> None:
    """Of images and of captions; an image without its row is named."""
    push(features.folder, tmp_path / "shared")
    splits = {"train": IDS[::2], "val": IDS[1::2]}
    data = dataset(tmp_path / "data", splits)
    pull(tmp_path / "shared", tmp_path / "val", dataset=data, split="val")
    assert FeatureSet(tmp_path / "val").ids == IDS[1::2]
    captions = [f"{image}#{k}" for image in ("a#1", "a", "b") for k in range(2)]
    write_features(tmp_path / "text", captions, np.ones((6, 2)), recipe={"name": "t"})
    push(tmp_path / "text", tmp_path / "texts")
    data = dataset(
        tmp_path / "two", {"train": ["a#1"], "val": ["a", "b"], "test": ["c"]}, captions=2
    )
    pull(tmp_path / "texts", tmp_path / "a", dataset=data, split="train")
    assert FeatureSet(tmp_path / "a").ids == captions[:2]
    pull(tmp_path / "texts", tmp_path / "b", dataset=data, split="val")
    assert FeatureSet(tmp_path / "b").ids == captions[2:]
    with pytest.raises(MissingRows, match=r"1 of the 1 images of the split 'test'.*'c'"):
        pull(tmp_path / "texts", tmp_path / "c", dataset=data, split="test")


def _kill_midway(server: Misbehaving, arguments: list[str]) -> None:
    """Run `pipeline shards pull` and kill it when the server has given half a shard, and waits."""
    server.hold_at = server.served + 80_000
    code = "import sys; sys.argv[0] = 'pipeline'; from stages.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "shards", "pull", *arguments],
        env=os.environ | {"PYTHONPATH": str(PROJECT), "no_proxy": "*"},
        stderr=subprocess.DEVNULL,
    )
    while server.served < server.hold_at and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    server.hold_at = None


def test_a_pull_of_a_split_interrupted_twice(
    tmp_path: Path, features: FeatureSet, server: Misbehaving
) -> None:
    """By SIGKILL, then by a server that breaks off: what has come is not asked for again."""
    data = dataset(tmp_path / "data", {"train": IDS[:14], "val": IDS[14:]})
    out, url = tmp_path / "out", f"{server.url}/set"
    _kill_midway(server, [url, str(out), "--dataset", str(data), "--split", "val"])
    assert not out.exists()
    server.faults = [
        once(lambda r: r.file == SHARDS[1] and r.answer(cut=5_000)),
        lambda r: r.file == SHARDS[2] and r.plain(503, b""),
    ]
    with pytest.raises(RemoteError, match=r"503.*5 attempts in a row"):
        pull(url, out, dataset=data, split="val")
    server.faults = []
    come = pull(url, out, dataset=data, split="val")
    assert come.moved < 21 * DIM * 4 + 3_000
    assert server.served < 46 * DIM * 4 + 100_000
    pulled = FeatureSet(out)
    assert pulled.ids == IDS[14:]
    np.testing.assert_array_equal(pulled.read(IDS[14:]), features.read(IDS[14:]))
    assert verify(out).faults == []
    assert {path.suffix for path in (tmp_path / ".work").iterdir()} == {".lock"}


def test_a_whole_pull_goes_on_within_a_file(
    tmp_path: Path, features: FeatureSet, server: Misbehaving
) -> None:
    """Where the server gives no ranges, it starts the file over."""
    monitor = Recorder()
    server.faults = [once(lambda r: r.file == SHARDS[1] and r.answer(cut=50_000))]
    come = pull(f"{server.url}/set", tmp_path / "a", monitor=monitor)
    same_files(tmp_path / "a", features.folder)
    assert server.served == come.moved
    assert [start for name, start in server.asked if name == SHARDS[1]] == [0, 50_000]
    assert any("attempt 2 of 5" in line for line in monitor.lines)
    assert monitor.steps[-1][:2] == ("pull", "byte")
    assert monitor.steps[-1][2] == monitor.steps[-1][3]
    server.ranges = False
    server.faults = [once(lambda r: r.file == SHARDS[1] and r.answer(cut=50_000))]
    come = pull(f"{server.url}/set", tmp_path / "b", monitor=monitor)
    same_files(tmp_path / "b", features.folder)
    with pytest.raises(RemoteError, match=r"ignores Range.*whole set"):
        pull(f"{server.url}/set", tmp_path / "c", ids=IDS[:2])


def redirect(server: Misbehaving, target: str) -> None:
    server.faults = [lambda r: r.plain(302, b"", Location=target)]


def status(number: int, name: str = "index.json") -> Lie:
    def answer(server: Misbehaving) -> None:
        server.faults = [lambda r: r.file == name and r.plain(number, b"")]

    return answer


def html(server: Misbehaving) -> None:
    server.faults = [lambda r: r.plain(200, b"<!DOCTYPE html>\x1b[2J")]


def wrong_bytes(server: Misbehaving) -> None:
    server.faults = [
        lambda r: r.file == SHARDS[1] and r.answer(change=lambda body: body[:-1] + b"x")
    ]


def too_short(server: Misbehaving) -> None:
    server.faults = [
        lambda r: r.file == SHARDS[1] and r.answer(change=lambda b: b[: max(0, 9000 - r.start)])
    ]


def endless(server: Misbehaving) -> None:
    def answer(request: Request) -> bool:
        request.send_response(200)
        request.end_headers()
        with suppress(OSError):
            while True:
                request.send(bytes(1 << 20))
        return True

    server.faults = [lambda r: r.file == SHARDS[1] and answer(r)]


def altered(name: str, change: Callable[[dict[str, Any]], object]) -> Lie:
    def lie(server: Misbehaving) -> None:
        path = server.folder / "set" / name
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))

    return lie


def contents_lie(key: str, value: object) -> Lie:
    return altered("files.json", lambda v: v["shards"][1].update({key: value}))


LIES: dict[str, tuple[Lie, type[PipelineError], str]] = {
    "not there": (status(404), NotThere, "no index.json.*still being pushed"),
    "forbidden": (status(403, SHARDS[0]), RemoteError, "403; it wants a permission"),
    "broken": (status(500, SHARDS[0]), RemoteError, "500; 5 attempts in a row failed"),
    "html": (html, ExchangeError, "damaged or of another kind.*<!DOCTYPE html>"),
    "a local file": (lambda s: redirect(s, "file:///etc/passwd"), RemoteError, "from http to file"),
    "no place": (lambda s: redirect(s, "http://["), RemoteError, r"leads to 'http://\[', which is"),
    "circles": (lambda s: redirect(s, "/set/index.json"), RemoteError, "more than 5 redirects"),
    "wrong bytes": (wrong_bytes, DamagedCopy, f"{SHARDS[1]} came 2 times.*found"),
    "too short": (too_short, RemoteError, "ended after 9,000 of"),
    "endless": (endless, DamagedCopy, f"{SHARDS[1]} came 2 times"),
    "a path": (
        altered("index.json", lambda v: v["shards"][0].update(file="../x.h5")),
        ExchangeError,
        "not the name of a shard",
    ),
    "an encoder's path": (
        altered("files.json", lambda v: v["encoder"][0].update(file="../x")),
        ExchangeError,
        "no plain name",
    ),
    "a part": (
        altered("files.json", lambda v: v["encoder"][0].update(file="x.part")),
        ExchangeError,
        "no plain name",
    ),
    "a shape": (
        altered("index.json", lambda v: v.update(row_shape=[10**30])),
        ExchangeError,
        "larger than any disk",
    ),
    "a size": (contents_lie("size", 1 << 50), ExchangeError, "at most .* were expected"),
    "places": (contents_lie("features", [[9, 5]]), ExchangeError, "where they cannot"),
    "another set": (contents_lie("sha256", "0" * 64), ExchangeError, "of two sets"),
    "too many rows": (
        altered(
            "index.json",
            lambda v: (
                v.update(rows=ROWS + 10**13 - 20, rows_per_shard=ROWS_PER_SHARD),
                v["shards"][2].update(rows=10**13),
            ),
        ),
        ExchangeError,
        "the files are no set.*10000000000000",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_in_its_name_and_leaves_no_output(
    tmp_path: Path, server: Misbehaving, lie: str
) -> None:
    tell, expected, message = LIES[lie]
    tell(server)
    with pytest.raises(expected, match=message) as raised:
        pull(f"{server.url}/set", tmp_path / "out" / "x")
    assert isinstance(raised.value, PipelineError)
    assert not (tmp_path / "out" / "x").exists()
    assert not (tmp_path / "out" / "x.encoder").exists()


def test_a_server_that_stalls_is_given_up(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_remote, "READ_SECONDS", 0.1)
    stalled = threading.Event()
    server.faults = [lambda r: r.file == SHARDS[1] and stalled.wait(10.0)]
    try:
        with pytest.raises(RemoteError, match=r"timed out.*5 attempts in a row"):
            pull(f"{server.url}/set", tmp_path / "x")
    finally:
        stalled.set()


def test_wrong_bytes_of_rows_are_found(tmp_path: Path, server: Misbehaving) -> None:
    """Of a row by its CRC-32, of the ids by their SHA-256; ids and URL are named."""
    wrong_bytes(server)
    with pytest.raises(DamagedCopy, match="all of it but the features came 2 times"):
        pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:27])
    change = server.faults
    server.faults = [lambda r: 9_000 < r.start < 160_000 and change[0](r)]
    with pytest.raises(DamagedCopy, match=f"1 rows came 2 times.*CRC-32, first .'{IDS[26]}'"):
        pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:27])
    server.faults = []
    pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:27])


def unavailable(name: str, places: range) -> Callable[[Request], bool]:
    return lambda r: r.file == name and r.start in places and r.plain(503, b"")


def test_unfinished_work_is_checked_before_it_is_used(
    tmp_path: Path, features: FeatureSet, server: Misbehaving
) -> None:
    """Whole shards, shards without features; half files that nobody asks for are not put there."""
    url = f"{server.url}/set"
    for out, some, last, places in (
        (tmp_path / "a", None, SHARDS[2], range(1)),
        (tmp_path / "b", IDS[25:27], SHARDS[1], range(9_001, 160_000)),
    ):
        server.faults = [unavailable(last, places)]
        with pytest.raises(RemoteError, match="5 attempts"):
            pull(url, out, ids=some)
        (work,) = (tmp_path / ".work").glob(f"{out.name}-*")
        for name in (SHARDS[0], "SHARDS.md.part", "encoder/x.part"):
            path = work / name
            path.parent.mkdir(exist_ok=True)
            damaged = bytearray(path.read_bytes() if path.is_file() else bytes(9))
            damaged[:5] = b"wrong"
            path.write_bytes(damaged)
        server.faults = []
        pull(url, out, ids=some)
        assert files_of(tmp_path / f"{out.name}.encoder") == {"encoder.json": b"{}"}
    same_files(tmp_path / "a", features.folder)
    assert verify(tmp_path / "b").faults == []


def test_another_recipe_is_refused_everywhere(tmp_path: Path, features: FeatureSet) -> None:
    there, other = tmp_path / "there", make(tmp_path / "other", "another")
    push(features.folder, there)
    for name in ("made", features.recipe_hash):
        pull(there, tmp_path / "a", recipe=name)
    with pytest.raises(OtherSet, match=f"'made' .{features.recipe_hash}.*'another'"):
        pull(there, tmp_path / "b", recipe="another")
    with pytest.raises(OtherShard, match="recipe"):
        pull(there, other.folder)
    with pytest.raises(OtherShard, match="recipe"):
        pull(there, other.folder, ids=IDS[:3])
    before = files_of(tmp_path / "there")
    with pytest.raises(OtherSet, match="recipe"):
        push(other.folder, there)
    values = make(tmp_path / "values", seed=1)
    with pytest.raises(OtherSet, match=r"shard-00000.*none of this set"):
        push(values.folder, there)
    with pytest.raises(OtherShard, match=r"shard-00000"):
        pull(there, values.folder)
    (values.folder / "index.json").unlink()
    others = files_of(values.folder)
    with pytest.raises(OtherShard, match=r"shard-00000"):
        pull(there, values.folder)
    assert files_of(values.folder) == others
    assert files_of(tmp_path / "there") == before


def test_a_set_that_has_grown_is_the_same_set(tmp_path: Path) -> None:
    """Only its new shards are sent and fetched; the smaller set is refused then."""
    there, out = tmp_path / "there", tmp_path / "out"
    build(tmp_path / "set", 12)
    shutil.copytree(tmp_path / "set", tmp_path / "small")
    push(tmp_path / "set", there)
    pull(there, out)
    build(tmp_path / "set", [*ids(12), "new-30.jpg"], add=True)
    first = out / "shard-00000-of-00002.h5"
    before = first.stat().st_ino
    push(tmp_path / "set", there)
    pull(there, out)
    same_files(out, tmp_path / "set")
    assert first.stat().st_ino == before
    with pytest.raises(OtherSet, match="none of this set's files"):
        push(tmp_path / "small", there)


def test_a_push_that_breaks_leaves_no_set_and_goes_on(
    tmp_path: Path, features: FeatureSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    sent: list[str] = []
    send = FolderRemote.send

    def broken(self: FolderRemote, name: str, blocks: Iterator[bytes]) -> None:
        def some() -> Iterator[bytes]:
            yield next(iter(blocks))
            raise KeyboardInterrupt

        sent.append(name)
        send(self, name, some() if name == SHARDS[1] else blocks)

    monkeypatch.setattr(FolderRemote, "send", broken)
    with pytest.raises(KeyboardInterrupt):
        push(features.folder, there)
    assert sorted(files_of(there)) == ["files.json", SHARDS[0]]
    with pytest.raises(NotThere, match="still being pushed"):
        pull(there, tmp_path / "x")
    with pytest.raises(OtherSet):
        push(make(tmp_path / "values", seed=1).folder, there)
    sent.clear()
    index = features.folder / "index.json"
    described = index.read_bytes()

    def recorded(self: FolderRemote, name: str, blocks: Iterator[bytes]) -> None:
        sent.append(name)
        send(self, name, blocks)
        index.write_text("what another command has put there meanwhile")

    monkeypatch.setattr(FolderRemote, "send", recorded)
    shard = features.folder / SHARDS[2]
    sound = shard.read_bytes()
    shard.write_bytes(sound[:-1] + b"x")
    with pytest.raises(DamagedShard, match="SHA-256"):
        push(features.folder, there)
    assert sorted(files_of(there)) == ["files.json", *SHARDS[:2]]
    shard.write_bytes(sound)
    index.write_bytes(described)
    push(features.folder, there)
    assert sent.count(SHARDS[0]) == 0
    assert sent[-1] == "index.json"
    index.write_bytes(described)
    same_files(there, features.folder, ("files.json",))
    unknown = tmp_path / "unknown" / SHARDS[0]  # of the same size, from nobody knows where
    unknown.parent.mkdir()
    unknown.write_bytes(bytes((there / SHARDS[0]).stat().st_size))
    with pytest.raises(OtherSet, match=f"holds a {SHARDS[0]} that is not this set's"):
        push(features.folder, unknown.parent)
    assert [*files_of(unknown.parent)] == [SHARDS[0]]
    shutil.copy(there / SHARDS[0], unknown)
    sent.clear()
    push(features.folder, unknown.parent)
    assert SHARDS[0] not in sent
    index.write_bytes(described)
    (unknown.parent / "files.json").write_text("[")
    with pytest.raises(OtherSet, match=r"begins with '\['; push to another place, or remove"):
        push(features.folder, unknown.parent)


def test_places_by_other_names(
    tmp_path: Path, features: FeatureSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DVC remote, and a protocol of fsspec; HTTP cannot be written to."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text(
        "[core]\n    remote = store\n['remote \"store\"']\n    url = ../store\n"
        "['remote \"bucket\"']\n    url = s3://b\n    endpointurl = http://x\n"
    )
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    push(features.folder, "dvc:store/a/set")
    same_files(tmp_path / "store" / "a" / "set", features.folder, ("files.json",))
    pull("dvc:store/a/set", tmp_path / "x")
    same_files(tmp_path / "x", features.folder)
    push(features.folder, "memory://shared/set")
    pull("memory://shared/set", tmp_path / "y", ids=IDS[:30])
    assert FeatureSet(tmp_path / "y").ids == IDS[:30]
    for url, message in (
        ("dvc:nowhere/a", "no remote 'nowhere'; it has store, bucket"),
        ("dvc:bucket/a", "options endpointurl"),
        ("http://localhost/a", "read only"),
        ("http://user:se@cret@localhost/a?key", r"^http://localhost/a: .*passwords are not sent"),
        ("http://[::1", "sound host"),
        ("nothing://a", "no such place"),
    ):
        with pytest.raises(RemoteError, match=message):
            push(features.folder, url)


def test_features_that_were_never_written_lie_nowhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("features", (3, 2), "f4")
    assert feature_spans(tmp_path / "x.h5") == []
