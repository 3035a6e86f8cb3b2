"""Pulling whole sets, splits and ids, also where it is interrupted."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.store.builder.arrays import write_features
from pipeline.store.objects.retry import RemoteError
from pipeline.store.shards.feature_set import FeatureSet, MissingRows
from pipeline.store.shards.format import OtherShard
from pipeline.store.shards.verify import verify
from pipeline.store.share.pull import pull
from pipeline.store.share.push import push
from tests.project import Recorder
from tests.store.shards.factories import contents as files_of
from tests.store.share.server import Misbehaving, Request, once
from tests.store.share.shared import (
    DIM,
    FAILED,
    IDS,
    ROWS,
    SHARDS,
    dataset,
    make,
    pull_command,
    same_files,
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
    assert {path.suffix for path in (tmp_path / ".work").iterdir()} == {"", ".lock"}


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
    most = 5 * (row if not compress else 1 << 16) + 3 * 10_000 + ROWS * 120
    assert come.moved < most < come.size * (1 if not compress else 9)
    before = files_of(tmp_path / "some")
    again = pull(tmp_path / "shared", tmp_path / "some", ids=asked)
    assert (files_of(tmp_path / "some"), again.moved < come.moved - row) == (before, True)
    with pytest.raises(MissingRows, match="'nowhere'"):
        pull(tmp_path / "shared", tmp_path / "none", ids=[IDS[0], "nowhere"])


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
    process = pull_command(arguments, stderr=subprocess.DEVNULL)
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
    assert {path.suffix for path in (tmp_path / ".work").iterdir()} == {"", ".lock"}


@pytest.mark.parametrize("where", ["folder", "memory", "http"])
def test_an_interrupted_pull_resumes_from_every_kind_of_place(
    tmp_path: Path, features: FeatureSet, server: Misbehaving, where: str
) -> None:
    """The whole set and a split: what was fetched before Ctrl-C is not fetched again."""
    places = {"folder": f"{tmp_path}/shared/set", "memory": f"memory://{tmp_path.name}/set"}
    url = places.get(where, f"{server.url}/set")
    if where != "http":
        push(features.folder, url)
    data = dataset(tmp_path / "data", {"train": IDS[:14], "val": IDS[14:]})
    shard = (features.folder / SHARDS[0]).stat().st_size
    with pytest.raises(KeyboardInterrupt):
        pull(url, tmp_path / "whole", monitor=Recorder(interrupt_at=shard))
    assert not (tmp_path / "whole").exists()
    come = pull(url, tmp_path / "whole")
    assert come.moved < come.size - shard + 4_000
    same_files(tmp_path / "whole", features.folder)
    row = DIM * 4
    monitor = Recorder(interrupt_at=6 * row)  # the rows of the first shard
    with pytest.raises(KeyboardInterrupt):
        pull(url, tmp_path / "val", dataset=data, split="val", monitor=monitor)
    come = pull(url, tmp_path / "val", dataset=data, split="val")
    assert 40 * row <= come.moved < 40 * row + 4_000
    assert FeatureSet(tmp_path / "val").ids == IDS[14:]
    assert verify(tmp_path / "val").faults == []


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


def test_a_bucket_says_forbidden_where_files_json_lacks(
    tmp_path: Path, features: FeatureSet, server: Misbehaving
) -> None:
    """As of a folder without it, whole files come: the set, and nothing beside it."""
    monitor = Recorder()
    server.faults = [lambda r: r.file == "files.json" and r.plain(403, b"")]
    pull(f"{server.url}/set", tmp_path / "a", monitor=monitor)
    assert {*files_of(tmp_path / "a")} == {"index.json", *SHARDS}
    np.testing.assert_array_equal(FeatureSet(tmp_path / "a").read(IDS[5:]), features.read(IDS[5:]))
    assert any("files.json: HTTP 403" in line for line in monitor.lines)


def test_another_set_is_refused_everywhere(tmp_path: Path, features: FeatureSet) -> None:
    """One of another recipe, and one of the same recipe with other values, finished or not."""
    there, other = tmp_path / "there", make(tmp_path / "other", "another").folder
    values = make(tmp_path / "values", seed=1).folder
    push(features.folder, there)
    for name in ("made", features.recipe_hash):
        pull(there, tmp_path / "a", recipe=name)
    before = [files_of(folder) for folder in (there, other)]
    with pytest.raises(RemoteError, match=f"'made' .{features.recipe_hash}.*'another'"):
        pull(there, tmp_path / "b", recipe="another")
    for out, ids, message in (
        (other, None, "recipe"), (other, IDS[:3], "recipe"), (values, None, "shard-00000"),
    ):  # fmt: skip
        with pytest.raises(OtherShard, match=message):
            pull(there, out, ids=ids)
    for folder, message in ((other, "recipe"), (values, r"shard-00000.*not a file of this set")):
        with pytest.raises(RemoteError, match=message):
            push(folder, there)
    assert [files_of(folder) for folder in (there, other)] == before
    (values / "index.json").unlink()
    others = files_of(values)
    with pytest.raises(OtherShard, match=r"shard-00000"):
        pull(there, values)
    assert files_of(values) == others
