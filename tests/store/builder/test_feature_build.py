"""Building feature sets: every way of being interrupted ends in the same bytes."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.store.builder import unfinished_shard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import DamagedShard, RowBlock, ShardError
from pipeline.store.shards.plan import Span
from tests.forks import exit_of
from tests.project import PROJECT
from tests.store.shards.factories import (
    ROWS_PER_SHARD,
    block,
    build,
    build_until,
    contents,
    feature,
    header,
    ids,
)

ROWS = 23


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """The bytes of an uninterrupted build."""
    build(tmp_path / "whole" / "out", ROWS)
    return contents(tmp_path / "whole")


@pytest.mark.parametrize("rows", [1, 9, 10, 11, 23])
def test_rows_come_back_by_id_whatever_the_number(tmp_path: Path, rows: int) -> None:
    index = build(tmp_path / "out", rows)
    assert [s.rows for s in index.shards] == [10] * (rows // 10) + [rows % 10] * (rows % 10 > 0)
    features = FeatureSet(tmp_path / "out")
    good = [row for row in reversed(range(rows)) if row not in (3, 17)]
    asked = [ids(rows)[row] for row in good]
    np.testing.assert_array_equal(features.read(asked), np.stack([feature(r) for r in good]))


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["journal", "no-journal"])
@pytest.mark.parametrize("stop_after", range(8))
def test_interrupted_then_continued_gives_the_same_bytes(
    tmp_path: Path,
    whole: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    stop_after: int,
    seconds: float,
) -> None:
    monkeypatch.setattr(unfinished_shard, "FLUSH_SECONDS", seconds)
    out = tmp_path / "again" / "out"
    if stop_after < 7:
        with pytest.raises(KeyboardInterrupt):
            build(out, ROWS, stop_after=stop_after)
        assert not out.exists()
        with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
            assert work.rows_done == min(stop_after * 4, 10) + max(0, stop_after - 3) * 4 - 2 * (
                stop_after == 6
            ), "no finished row is lost"
    build(out, ROWS)
    assert contents(tmp_path / "again") == whole


def program(
    out: Path, function: str, call: int, task: str = "", limit: int = resource.RLIM_INFINITY
) -> tuple[int, str]:
    """Return the status and stderr of `factories.build_until` in a process of its own.

    `limit` is the most bytes that a file of it may have.
    """
    # Not a file, which would be limited, too.
    read, written = os.pipe()

    def run() -> None:
        sys.stderr = os.fdopen(written, "w")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        build_until(out, ROWS, function, call, task)

    status = exit_of(run)
    os.close(written)
    with os.fdopen(read) as stderr:
        return status, stderr.read()


@pytest.mark.parametrize("function", ["os.fsync", "os.replace"])
@pytest.mark.parametrize("task", ["", "redo", "add"])
def test_killed_before_any_write_gives_the_same_bytes(
    tmp_path: Path, whole: dict[str, bytes], function: str, task: str
) -> None:
    """SIGKILL before each fsync and each rename of a whole task, then once more."""
    before = tmp_path / "before"
    options: dict[str, Any] = {}
    if task == "redo":
        build(before / "out", ROWS, failed=(3, 5, 6, 17))
        options = {"redo": True, "failed": ()}
        build(tmp_path / "redone" / "out", ROWS, failed=())
        whole = contents(tmp_path / "redone")
    elif task == "add":
        build(before / "out", ids(ROWS)[:13])
        options = {"add": True}
        shutil.copytree(before, tmp_path / "added")
        build(tmp_path / "added" / "out", ROWS, **options)
        whole = contents(tmp_path / "added")
    else:
        before.mkdir()
    at_first = contents(before)
    call = 0
    while True:
        out = tmp_path / f"killed{call}" / "out"
        shutil.copytree(before, out.parent)
        status, stderr = program(out, function, call, task)
        if status == 0:
            break
        assert status == -signal.SIGKILL, stderr
        for path in (p for p in out.glob("*") if p.suffix != ".part"):
            valid = (whole.get(f"out/{path.name}"), at_first.get(f"out/{path.name}"))
            assert path.read_bytes() in valid, "final names hold final bytes"
        if task:
            features = FeatureSet(out)
            np.testing.assert_array_equal(features.read(ids(ROWS)[7:8])[0], feature(7))
        build(out, ROWS, **options)
        assert contents(out.parent) == whole
        call += 1 if function == "os.replace" else 3
    assert contents(out.parent) == whole
    assert call >= 3


def test_a_journal_row_whose_bytes_change_is_recomputed_alone(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_shard, "FLUSH_SECONDS", 0.0)
    out = tmp_path / "changed" / "out"
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        work.append(0, block(0, 4, (3,)))
        work.append(4, block(4, 8))
        (journal,) = work.work.glob("*/*.journal")
        data = bytearray(journal.read_bytes())
        data[data.index(feature(5).tobytes())] ^= 1
        journal.write_bytes(data)
        work.append(8, block(8, 10))
        with pytest.raises(DamagedShard, match=f"row 5, id '{ids(ROWS)[5]}', is corrupt or"):
            work.publish()
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        assert work.pending()[0] == Span(5, 6)
    build(out, ROWS)
    assert contents(out.parent) == whole


def test_a_flipped_byte_is_found_and_only_its_shard_made_again(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out = tmp_path / "flipped" / "out"
    build(out, ROWS)
    damaged, sound = (out / f"shard-0000{n}-of-00003.h5" for n in (1, 2))
    before = sound.stat()
    data = bytearray(damaged.read_bytes())
    data[data.index(feature(12).tobytes())] ^= 1
    damaged.write_bytes(data)

    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        assert len(work.damaged) == 1
        assert str(damaged) in work.damaged[0]
        assert ids(ROWS)[12] in work.damaged[0]
        assert work.rows_done == ROWS - 10
    build(out, ROWS)
    assert contents(out.parent) == whole
    assert sound.stat().st_ino == before.st_ino


def test_a_run_removes_what_a_killed_one_had_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_shard, "FLUSH_SECONDS", 0.0)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        build(out, ROWS, stop_after=1)
    (journal,) = tmp_path.glob(".work/out-*/*/*.journal")
    job = journal.parents[1] / "run-0123456789ab"
    parts = [journal.with_name("shard-00000-of-00003.h5.0123456789ab.part")]
    for path in (job, *parts):
        path.write_bytes(b"half")
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        assert not [path for path in (job, *parts) if path.exists()]
        assert work.rows_done == 4


def test_a_damaged_index_is_written_again(tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "again" / "out"
    build(out, ROWS)
    (out / "index.json").write_text("{")
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        assert [str(out / "index.json") in text for text in work.damaged] == [True]
    build(out, ROWS)
    assert contents(out.parent) == whole


def test_rows_out_of_turn_or_not_finite_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ShardError, match="unexpected rows 0 to 10: the next pending rows"),
        ShardBuild(tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD) as work,
    ):
        work.append(0, block(0, 11))
    overflow = block(0, 4)
    overflow.features[2] = 1e6
    with (
        pytest.raises(ShardError, match=ids(ROWS)[2]),
        ShardBuild(tmp_path / "half", header(dtype="float16"), ids(ROWS), 4) as work,
    ):
        work.append(0, RowBlock(overflow.features, overflow.status, overflow.errors))


def test_a_run_that_stopped_within_publishing_keeps_to_its_layout(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole" / "out", tmp_path / "stopped" / "out"
    build(whole, ROWS, compress=True)
    build(out, ROWS, compress=True)
    for name in ("index.json", "shard-00001-of-00003.h5"):
        (out / name).unlink()
    build(out, ROWS, compress=False)
    assert contents(out.parent) == contents(whole.parent)


@pytest.mark.parametrize("task", ["", "compress"])
def test_a_disk_that_is_full_loses_no_finished_row(tmp_path: Path, task: str) -> None:
    """One byte too few for the shard: its rows are kept in a journal, which is smaller."""
    compress = task == "compress"
    build(tmp_path / "whole" / "out", ROWS, compress=compress)
    whole = contents(tmp_path / "whole")
    size = len(whole["out/shard-00000-of-00003.h5"])
    for limit, kept in ((size - 1, 10), (2000, 10), (100, 0)):
        out = tmp_path / str(limit) / "out"
        status, stderr = program(out, "os.fsync", -1, task, limit)
        assert status == 1, stderr
        assert "rerun the command to resume" in stderr
        assert not [*out.parent.rglob("*.part")]
        with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD, compress) as work:
            assert work.rows_done >= kept
        build(out, ROWS, compress=compress)
        assert contents(out.parent) == whole


def test_a_disk_that_is_full_for_the_index_alone_says_so(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out = tmp_path / "again" / "out"
    build(out, ROWS)
    (out / "index.json").unlink()
    status, stderr = program(out, "os.fsync", -1, limit=len(whole["out/index.json"]) - 1)
    assert status == 1, stderr
    assert "ShardError: index.json of " in stderr
    assert "rerun the command to resume" in stderr
    assert contents(out.parent).keys() == whole.keys() - {"out/index.json"}
    build(out, ROWS)
    assert contents(out.parent) == whole


def test_a_linked_or_relative_output_is_one_output(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "disk" / "out"
    target.mkdir(parents=True)
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "link", ROWS, stop_after=1)
    monkeypatch.chdir(target)
    with (
        ShardBuild(Path(), header(), ids(ROWS), ROWS_PER_SHARD) as work,
        pytest.raises(ShardError, match="another process"),
        ShardBuild(tmp_path / "link", header(), ids(ROWS), ROWS_PER_SHARD),
    ):
        pass
    assert work.work.parent == tmp_path / "disk" / ".work"
    assert work.rows_done == 4
    build(Path(), ROWS)
    assert contents(target.parent) == whole
    assert (tmp_path / "link").is_symlink()


def test_two_processes_at_once_make_one_right_result(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out = tmp_path / "both" / "out"
    sample = str(PROJECT / "tests/store/shards/factories.py")
    command = [sys.executable, "-B", sample, str(out), str(ROWS)]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [run.communicate()[1] for run in runs]
    assert 0 in [run.returncode for run in runs], errors
    for run, text in zip(runs, errors, strict=True):
        assert run.returncode == 0 or "another process is writing" in text
    assert contents(out.parent) == whole


def test_a_refused_block_leaves_those_before_it(tmp_path: Path) -> None:
    arguments = (tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD)
    bad = block(4, 8)
    bad.features[1] = np.inf
    with ShardBuild(*arguments) as work:
        work.append(0, block(0, 4))
        with pytest.raises(ShardError, match=ids(ROWS)[5]):
            work.append(4, bad)
        assert work.pending()[0] == Span(4, 10)
    with ShardBuild(*arguments) as work:
        assert work.rows_done == 4


@pytest.mark.usefixtures("tried_apart")
def test_a_published_shard_that_hangs_hdf5_is_made_again(tmp_path: Path) -> None:
    """One bit of the length that stands before a text in HDF5's heap: an endless loop in 2.0."""
    build(tmp_path / "set" / "out", ROWS, format_version=1)
    whole = contents(tmp_path / "set")
    path = tmp_path / "set" / "out" / "shard-00001-of-00003.h5"
    data = bytearray(path.read_bytes())
    data[data.index(ids(ROWS)[15].encode()) - 7] ^= 2
    path.write_bytes(data)
    build(tmp_path / "set" / "out", ROWS)
    assert contents(tmp_path / "set") == whole
