"""Feature sets read where they are: the rows of the folder, few bytes, and one cache for all."""

import fcntl
import os
import pickle
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from torch.utils.data import DataLoader

from pipeline.store.builder.arrays import write_features
from pipeline.store.errors import PipelineError, WrongUsage
from pipeline.store.objects import block_cache, cache_folder, retry
from pipeline.store.objects.retry import RemoteError
from pipeline.store.shards.feature_set import FailedRows, FeatureSet
from pipeline.store.shards.format import DamagedShard, ShardError
from pipeline.store.shards.index import read_index
from pipeline.store.shards.side_by_side import write_view
from pipeline.store.share.push import push
from tests.forks import exit_of
from tests.store.share.server import Misbehaving, once, serving

ROWS, DIM, PER_SHARD, FAILED = 600, 256, 200, 7
IDS = [f"bild/é{row}.jpg" for row in range(ROWS)]
ROW_BYTES, BLOCK = 4 * DIM, 1 << 12
INDEX_AND_FIRST_BYTES = 2_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of blocks of four rows; attempts follow each other at once."""
    monkeypatch.setenv("PIPELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(block_cache, "BLOCK", BLOCK)
    monkeypatch.setattr(retry, "PAUSE_SECONDS", 0.01)
    return tmp_path / "cache"


def write(folder: Path, compress: bool = False, seed: int = 0) -> FeatureSet:
    array = np.random.default_rng(seed).standard_normal((ROWS, DIM)).astype(np.float32)
    status = np.zeros(ROWS, int)
    status[FAILED] = 1
    write_features(
        folder, IDS, array, recipe={"name": "made"}, status=status, dataset="d",
        rows_per_shard=PER_SHARD, compress=compress,
    )  # fmt: skip
    return FeatureSet(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FeatureSet]:
    """The set contiguous, compressed, and with other values."""
    folder = tmp_path_factory.mktemp("made")
    return {
        "set": write(folder / "set"),
        "compressed": write(folder / "compressed", compress=True),
        "other": write(folder / "other", seed=1),
    }


@pytest.fixture
def local(made: dict[str, FeatureSet]) -> FeatureSet:
    return made["set"]


@pytest.fixture
def server(tmp_path: Path, made: dict[str, FeatureSet]) -> Iterator[Misbehaving]:
    for name, features in made.items():
        shutil.copytree(features.folder, tmp_path / "srv" / name)
    with serving(tmp_path / "srv") as server:
        yield server


def require_same(features: FeatureSet, local: FeatureSet, seed: int = 0) -> None:
    """Assert that rows in order, shuffled, repeated and failed ones are those of the folder."""
    for name in ("ids", "errors"):
        assert list(getattr(features, name)) == list(getattr(local, name))
    for name in ("status", "crc32", "source_crc32"):
        np.testing.assert_array_equal(getattr(features, name), getattr(local, name))
    assert features.index == local.index
    shuffled = np.random.default_rng(seed).permutation(ROWS)
    for rows in ([5, 5, ROWS - 1, 5, 0], shuffled[:50], shuffled, np.arange(ROWS), [FAILED]):
        read = features.read_rows(np.array(rows))
        assert read.tobytes() == local.read_rows(np.array(rows)).tobytes()
    with pytest.raises(FailedRows):
        features.read([IDS[FAILED]])


@pytest.mark.parametrize("kind", ["set", "compressed"])
def test_the_rows_of_a_server_are_those_of_the_folder(
    kind: str, made: dict[str, FeatureSet], server: Misbehaving
) -> None:
    features = FeatureSet(f"{server.url}/{kind}")
    require_same(features, made[kind])
    served = server.served
    require_same(pickle.loads(pickle.dumps(features)), made[kind])
    assert server.served - served < INDEX_AND_FIRST_BYTES


def test_the_rows_of_a_bucket_in_this_process_and_in_workers(
    s3: str, local: FeatureSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_cache, "BLOCK", 1 << 18)
    url = f"{s3}/read-in-place"
    push(local.folder, url)
    features = FeatureSet(Path(url))
    require_same(features, local)
    ids = [IDS[row] for row in (9, 400, 3, 3, 599, 8)]
    rows: Any = FeatureSet(url).torch_dataset(ids)
    loader: DataLoader[Any] = DataLoader(
        rows, batch_size=3, num_workers=2,
        multiprocessing_context="fork",
    )  # fmt: skip
    np.testing.assert_array_equal(np.concatenate([*loader]), local.read(ids))


def test_a_set_is_opened_without_its_features_and_rows_move_their_blocks(
    server: Misbehaving, local: FeatureSet
) -> None:
    features = FeatureSet(f"{server.url}/set")
    files = [local.folder / entry.file for entry in local.index.shards]
    rest = sum(file.stat().st_size for file in files) - ROWS * ROW_BYTES
    # Each shard has features next to what is before and behind them.
    assert server.served < rest + INDEX_AND_FIRST_BYTES + 3 * 2 * BLOCK
    served, asked = server.served, len(server.asked)
    rows = np.random.default_rng(0).permutation(np.arange(4, ROWS - 4))[:10]
    assert features.read_rows(rows).tobytes() == local.read_rows(rows).tobytes()
    assert server.served - served <= 10 * 2 * BLOCK  # a row may lie in two
    assert len(server.asked) - asked <= 10
    served = server.served
    features.read_rows(rows)
    assert server.served == served
    features.read_rows(np.arange(PER_SHARD))  # in requests of several blocks
    assert len(server.asked) - asked < 10 + PER_SHARD * ROW_BYTES / BLOCK / 4


def test_threads_and_a_fork_read_at_the_same_time(server: Misbehaving, local: FeatureSet) -> None:
    features = FeatureSet(f"{server.url}/set")
    features.read_rows(np.arange(10))
    with ThreadPoolExecutor(4) as pool:
        for read in [pool.submit(require_same, features, local, seed) for seed in range(4)]:
            read.result()
    assert exit_of(require_same, features, local) == 0


def test_two_processes_fill_one_cache(server: Misbehaving, local: FeatureSet) -> None:
    def read(seed: int) -> None:
        require_same(FeatureSet(f"{server.url}/set"), local, seed)

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lambda seed: exit_of(read, seed), (1, 2))] == [0, 0]
    served = server.served
    read(3)
    assert server.served - served < INDEX_AND_FIRST_BYTES


def test_the_cache_of_a_killed_process_is_used(server: Misbehaving, local: FeatureSet) -> None:
    server.hold_at = 100_000

    def kill_reader() -> None:
        while server.served < 100_000:
            time.sleep(0.01)
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_reader)
    killer.start()
    assert exit_of(lambda: FeatureSet(f"{server.url}/set").read(allow_failed=True)) == -9
    killer.join()
    server.hold_at = None
    require_same(FeatureSet(f"{server.url}/set"), local)


def test_bytes_that_differ_from_the_record_are_fetched_again(
    server: Misbehaving, local: FeatureSet, cache: Path
) -> None:
    url = f"{server.url}/set"
    FeatureSet(url).read(allow_failed=True)
    for file in cache.iterdir():  # as a power failure leaves them
        with file.open("r+b") as stream:
            stream.seek(3 * BLOCK)
            stream.write(bytes(BLOCK))
            stream.seek(-8, os.SEEK_END)
            stream.write(bytes(8))
    require_same(FeatureSet(url), local)


@pytest.mark.parametrize("limit", ["100KB", "1 KB", "0"])
def test_the_least_recently_used_copies_make_room(
    limit: str, server: Misbehaving, local: FeatureSet, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_CACHE_SIZE", limit)
    features = FeatureSet(f"{server.url}/set")
    require_same(features, local)
    for row in range(0, ROWS, 40):
        features.read_rows(np.array([row]))
        assert sum(512 * file.stat().st_blocks for file in cache.iterdir()) <= 102_400


def test_a_copy_that_another_process_reads_stays(
    server: Misbehaving, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FeatureSet(f"{server.url}/set").read(allow_failed=True)
    (cache / "of another program").write_bytes(bytes(1000))
    oldest, *others = sorted(cache.glob("*.blocks"), key=lambda file: file.stat().st_mtime_ns)
    with oldest.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        cache_folder.make_room(cache, 0)
    assert {*cache.iterdir()} == {oldest, cache / "of another program"}
    assert others


def test_a_cache_that_is_deleted_is_made_again(
    server: Misbehaving, local: FeatureSet, cache: Path
) -> None:
    features = FeatureSet(f"{server.url}/set")
    features.read_rows(np.arange(20))
    shutil.rmtree(cache)
    require_same(features, local)


def test_a_changed_object_is_never_mixed_with_old_blocks(made: dict[str, FeatureSet]) -> None:
    files = fsspec.filesystem("memory")
    url = "memory://changing/set"
    push(made["set"].folder, url)
    features = FeatureSet(url)
    features.read_rows(np.arange(20))
    for file in made["other"].folder.iterdir():
        files.pipe_file(f"/changing/set/{file.name}", file.read_bytes())
    with pytest.raises(RemoteError, match="has changed while it was read; open the feature set"):
        features.read_rows(np.arange(100, 120))
    require_same(FeatureSet(url), made["other"])


def test_an_index_tells_objects_apart_where_the_server_states_no_etag(
    made: dict[str, FeatureSet], server: Misbehaving
) -> None:
    url = f"{server.url}/set"
    FeatureSet(url).read(allow_failed=True)
    shutil.copytree(made["other"].folder, server.folder / "set", dirs_exist_ok=True)
    require_same(FeatureSet(url), made["other"])


def test_a_corrupt_or_truncated_object_is_named(server: Misbehaving) -> None:
    file = server.folder / "set" / "shard-00001-of-00003.h5"
    data = file.read_bytes()
    at = 10 * BLOCK
    file.write_bytes(data[:at] + bytes(8) + data[at + 8 :])
    with pytest.raises(DamagedShard, match=r"shard-00001.*CRC-32 differs"):
        FeatureSet(f"{server.url}/set").read(allow_failed=True)
    file.write_bytes(data[:at])
    with pytest.raises(DamagedShard, match=r"shard-00001.*truncated.*copy it again"):
        FeatureSet(f"{server.url}/set")
    file.unlink()
    with pytest.raises(RemoteError, match=r"shard-00001-of-00003.h5.* does not exist"):
        FeatureSet(f"{server.url}/set")


def test_a_lost_connection_is_retried_and_then_named(
    server: Misbehaving, local: FeatureSet
) -> None:
    features = FeatureSet(f"{server.url}/set")
    server.faults = [once(lambda request: request.answer(cut=100))]
    rows = np.arange(100, 300)
    assert features.read_rows(rows).tobytes() == local.read_rows(rows).tobytes()
    server.faults = [lambda request: request.plain(503, b"")]
    with pytest.raises(RemoteError, match=r"HTTP 503; 5 attempts in a row failed: rerun"):
        features.read_rows(np.arange(400, 500))
    server.faults = []
    require_same(features, local)


def test_a_cache_that_cannot_be_written_is_named(
    server: Misbehaving, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("")
    with pytest.raises(RemoteError, match="name a writable folder in PIPELINE_CACHE"):
        FeatureSet(f"{server.url}/set")
    monkeypatch.setenv("PIPELINE_CACHE_SIZE", "much")
    with pytest.raises(WrongUsage, match="PIPELINE_CACHE_SIZE is 'much'; expected a size such as"):
        cache_folder.cache_limit()


@pytest.mark.parametrize(
    ("text", "size"), [("20GB", 20e9), ("1.5 mib", 1.5 * 2**20), ("7", 7), ("3T", 3e12)]
)
def test_sizes_are_read(text: str, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_CACHE_SIZE", text)
    assert cache_folder.cache_limit() == size


def test_a_view_of_a_set_at_a_url_is_refused_by_name(
    server: Misbehaving, local: FeatureSet, tmp_path: Path
) -> None:
    parts = [FeatureSet(f"{server.url}/other"), local]
    with pytest.raises(ShardError, match=r"/other is not in the parent folder of .*move it there"):
        write_view(tmp_path / "view", parts, "unit")


def test_what_is_no_set_at_a_url_is_refused_by_name(server: Misbehaving) -> None:
    with pytest.raises(ShardError, match=r"no/index.json not found.*shards push"):
        FeatureSet(f"{server.url}/no")
    with pytest.raises(ShardError, match="without password and query") as refused:
        read_index(f"{server.url}/set?signature=secret")
    assert "secret" not in str(refused.value)
    server.ranges = False
    with pytest.raises(RemoteError, match=r"ignores Range.*`pipeline shards pull` fetches whole"):
        FeatureSet(f"{server.url}/set")
    with pytest.raises(PipelineError, match="unknown location"):
        FeatureSet("nothing://b/x")
