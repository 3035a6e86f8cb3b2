"""Shards that child processes verify are those that this process verifies."""

import errno
import io
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.errors import PipelineError
from pipeline.store.jobs import inspecting_processes
from pipeline.store.jobs.child_processes import ChildDied, ChildProcesses
from pipeline.store.jobs.inspecting_processes import InspectingProcesses
from pipeline.store.shards.format import OK, UNREADABLE, DamagedShard, RowBlock
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.reader import ShardFile
from tests.store.shards.factories import header


def built(out: Path, inspect: InspectingProcesses | None = None) -> FeatureIndex:
    ids = ["a", "b\n", "ü", "d", "e"]
    block = RowBlock(
        np.arange(5 * 4, dtype=np.float32).reshape(5, 2, 2),
        np.array([OK, OK, UNREADABLE, OK, OK], np.uint8),
        ("", "", "no image", "", ""),
    )
    given = {} if inspect is None else {"inspect": inspect}
    with ShardBuild(out, header(row_shape=(2, 2)), ids, 5, **given) as build:  # type: ignore[arg-type]
        return build.fill(lambda spans, watch: iter([(0, block)]))


def test_the_index_is_the_same(tmp_path: Path) -> None:
    assert built(tmp_path / "there", InspectingProcesses()) == built(tmp_path / "here")


def test_a_damaged_shard_and_a_killed_child_are_named(tmp_path: Path) -> None:
    built(tmp_path / "set")
    path = next((tmp_path / "set").glob("shard-*"))
    shard, inspect = ShardFile(path), InspectingProcesses()
    assert inspect(shard, 0) == shard.inspect(0)
    data = bytearray(path.read_bytes())
    at = data.index(np.float32(19).tobytes())
    path.write_bytes(data[:at] + np.float32(18).tobytes() + data[at + 4 :])
    with pytest.raises(DamagedShard, match="row 4, id 'e', is corrupt"):
        inspect(shard, 0)
    with inspect._children.one() as child:
        os.kill(child._process.pid, signal.SIGKILL)
    with pytest.raises(PipelineError, match=r"status -9 while it read .*shard-00000"):
        inspect(shard, 0)
    path.write_bytes(data)
    assert inspect(shard, 0) == ShardFile(path).inspect(0)


def test_a_child_names_the_error_of_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tmp_path / "set")
    path = next((tmp_path / "set").glob("shard-*"))

    def failing(shard: ShardFile, first_row: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(shard.path))

    given, out = io.BytesIO(f"null\n{json.dumps([str(path), 0])}\n".encode()), io.BytesIO()
    monkeypatch.setattr(inspecting_processes, "answering", lambda: (given, out))
    monkeypatch.setattr(ShardFile, "inspect", failing)
    inspecting_processes.answer()
    assert json.loads(out.getvalue()) == {
        "failed": f"{path} cannot be read (Input/output error); check the disk"
    }


def test_the_last_error_of_a_child_is_named() -> None:
    children = ChildProcesses("pipeline.no_such_module:answer")
    died = pytest.raises(ChildDied, match=r"status 1 \(ModuleNotFoundError: .*no_such_module")
    with died, children.one() as child:
        child.reply()
