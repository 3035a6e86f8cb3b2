"""Building feature sets: every way of being interrupted ends in the same bytes."""

import resource
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.canonical import OutputError
from pipeline.shards import build as build_module
from pipeline.shards import probe
from pipeline.shards.build import ShardBuild
from pipeline.shards.format import OtherShard, RowBlock, ShardError
from pipeline.shards.index import read_index
from pipeline.shards.plan import PlanError, ShardPlan, Span, plan_of, runs
from pipeline.shards.read import FeatureSet
from tests.shards.sample import ROWS_PER_SHARD, block, build, contents, feature, feed, header, ids

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


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="empty"):
        ShardBuild(tmp_path / "out", header(), [])


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["pieces", "no-pieces"])
@pytest.mark.parametrize("stop_after", range(8))
def test_interrupted_then_continued_gives_the_same_bytes(
    tmp_path: Path,
    whole: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    stop_after: int,
    seconds: float,
) -> None:
    monkeypatch.setattr(build_module, "PIECE_SECONDS", seconds)
    out = tmp_path / "again" / "out"
    if stop_after < 7:
        with pytest.raises(KeyboardInterrupt):
            build(out, ROWS, stop_after=stop_after)
        assert not out.exists()
        with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as making:
            assert making.rows_done == min(stop_after * 4, 10) + max(0, stop_after - 3) * 4 - 2 * (
                stop_after == 6
            ), "no finished row is lost"
    build(out, ROWS)
    assert contents(tmp_path / "again") == whole


def program(
    out: Path, function: str, call: int, task: str = "", limit: int = resource.RLIM_INFINITY
) -> subprocess.CompletedProcess[str]:
    """Run sample.py; `limit` is the most bytes that a file of it may have."""
    command = [sys.executable, "-B", str(Path(__file__).with_name("sample.py")), str(out)]
    return subprocess.run(
        [*command, str(ROWS), function, str(call), *filter(None, [task])],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )


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
        run = program(out, function, call, task)
        if run.returncode == 0:
            break
        assert run.returncode == -signal.SIGKILL, run.stderr
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

    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as making:
        assert len(making.damaged) == 1
        assert str(damaged) in making.damaged[0]
        assert ids(ROWS)[12] in making.damaged[0]
        assert making.rows_done == ROWS - 10
    build(out, ROWS)
    assert contents(out.parent) == whole
    assert sound.stat().st_ino == before.st_ino


def test_unfinished_work_on_other_inputs_is_not_continued(tmp_path: Path) -> None:
    arguments = (tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD, False)
    for inputs, done in (("red", 0), ("red", 4), ("blue", 0)):
        with ShardBuild(*arguments, inputs) as making:
            assert making.rows_done == done
            if not done:
                making.append(0, block(0, 4))


def test_a_damaged_index_is_written_again(tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "again" / "out"
    build(out, ROWS)
    (out / "index.json").write_text("{")
    build(out, ROWS)
    assert contents(out.parent) == whole


def test_an_output_that_cannot_be_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="is a file"):
            build(out, ROWS)
    assert contents(tmp_path) == {"file": b"mine"}


def test_a_shard_that_may_not_be_read_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "out", ROWS)
    before = contents(tmp_path)

    def denied(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(h5py, "File", denied)
        with pytest.raises(ShardError, match="check its permissions"):
            build(tmp_path / "out", ROWS)
    assert contents(tmp_path) == before


def test_other_unfinished_work_is_named_but_not_that_of_other_outputs(tmp_path: Path) -> None:
    for name in ("out", "out-grid"):
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / name, ROWS, stop_after=2)
    with ShardBuild(tmp_path / "out", header(weights="x"), ids(ROWS), ROWS_PER_SHARD) as making:
        assert [p.name[:-16] for p in making.other_work()] == ["out-"]


def test_a_finished_set_is_left_alone(tmp_path: Path) -> None:
    first = build(tmp_path / "out", ROWS)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert build(tmp_path / "out", ROWS) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"recipe": {"name": "other", "scale": 1}}, "name 'made' .asked for: 'other'"),
        ({"weights_sha256": "1" * 64}, "has weights_sha256"),
        ({"rows": 22}, "23 rows"),
    ],
)
def test_an_output_of_another_set_is_refused_and_kept(
    tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    build(tmp_path / "out", ROWS)
    before = contents(tmp_path)
    rows = int(str(changes.pop("rows", ROWS)))
    with pytest.raises(OtherShard, match=found):
        build(tmp_path / "out", rows, **changes)
    assert contents(tmp_path) == before


def test_other_ids_are_refused(tmp_path: Path) -> None:
    build(tmp_path / "out", ROWS)
    with (
        pytest.raises(OtherShard, match="another output folder"),
        ShardBuild(tmp_path / "out", header(), ids(ROWS)[::-1], ROWS_PER_SHARD),
    ):
        pass


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    arguments = (tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD)
    with (
        ShardBuild(*arguments),
        pytest.raises(ShardError, match="another process"),
        ShardBuild(*arguments),
    ):
        pass
    build(tmp_path / "out", ROWS)


def test_rows_out_of_turn_or_not_finite_are_refused(tmp_path: Path) -> None:
    with ShardBuild(tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD) as making:
        with pytest.raises(ShardError, match="out of turn"):
            making.append(4, block(4, 8))
        with pytest.raises(ShardError, match="out of turn"):
            making.append(0, block(0, 11))
    overflow = block(0, 4)
    overflow.features[2] = 1e6
    with (
        pytest.raises(ShardError, match=ids(ROWS)[2]),
        ShardBuild(tmp_path / "half", header(dtype="float16"), ids(ROWS), 4) as making,
    ):
        making.append(0, RowBlock(overflow.features, overflow.status, overflow.errors))


def inodes(folder: Path) -> dict[str, int]:
    """The inode of every shard."""
    return {path.name: path.stat().st_ino for path in folder.glob("*.h5")}


@pytest.mark.parametrize("compress", [False, True])
def test_rows_made_again_give_the_bytes_of_a_fresh_build(tmp_path: Path, compress: bool) -> None:
    """The set's own layout is kept, whatever is asked for; a row that fails again stays failed."""
    fresh, out = tmp_path / "fresh" / "out", tmp_path / "again" / "out"
    build(fresh, ROWS, failed=(3,), compress=compress)
    build(out, ROWS, failed=(3, 4, 7), compress=compress)
    untouched = inodes(out)
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as making:
        found = list(making.finished())
        assert [span for span, _, _ in found] == [Span(0, 10), Span(10, 20), Span(20, 23)]
        status, sources = (np.concatenate([one[n] for one in found]) for n in (1, 2))
        assert np.flatnonzero(status).tolist() == [3, 4, 7]
        changed = np.arange(1, ROWS + 1) != sources
        np.testing.assert_array_equal(changed, status != 0)
        making.redo(np.flatnonzero(status))
        assert making.pending() == [Span(3, 5), Span(7, 8)]
        assert making.rows_done == ROWS - 3
        with pytest.raises(ShardError, match="out of turn"):
            making.append(7, block(7, 8))
        making.append(3, block(3, 5, failed=(3,)))
        making.append(7, block(7, 8))
        assert making.pending() == []
        making.publish()
    assert contents(out.parent) == contents(fresh.parent)
    kept = [name for name, inode in inodes(out).items() if inode == untouched[name]]
    assert sorted(kept) == ["shard-00001-of-00003.h5", "shard-00002-of-00003.h5"]


def test_any_rows_in_any_interruptions_give_the_bytes_of_a_fresh_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "PIECE_SECONDS", 0.0)
    build(tmp_path / "fresh" / "out", ROWS, failed=())
    fresh = contents(tmp_path / "fresh")
    rng = np.random.default_rng(0)
    for number in range(12):
        out = tmp_path / str(number) / "out"
        rows = np.flatnonzero(rng.random(ROWS) < rng.random())
        build(out, ROWS, failed=tuple(rows.tolist()))
        most = len(rows)
        for stop_after in (int(rng.integers(4)), int(rng.integers(4)), None):
            with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as making:
                failed = [s.start + np.flatnonzero(status) for s, status, _ in making.finished()]
                making.redo(np.concatenate(failed))
                assert ROWS - making.rows_done <= most, "no row made again is lost"
                batches = [b for span in making.pending() for b in span.batches(2)]
                for rows_of in batches[:stop_after]:
                    making.append(rows_of.start, block(rows_of.start, rows_of.stop))
                most = ROWS - making.rows_done
        build(out, ROWS, failed=(), redo=True)
        assert contents(out.parent) == fresh


def test_rows_that_are_not_there_cannot_be_made_again(tmp_path: Path) -> None:
    build(tmp_path / "out", ROWS)
    with ShardBuild(tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD) as making:
        making.redo([])
        for row in (-1, ROWS):
            with pytest.raises(ShardError, match="rows 0 to 22"):
                making.redo([4, row])
        assert making.pending() == []


def test_a_set_grows_twice_and_its_shards_stay(tmp_path: Path) -> None:
    """Later ids come last, though they are asked for in between."""
    out = tmp_path / "out"
    all_ids = ids(ROWS)
    generations = [all_ids[2:15], all_ids[1:18], all_ids]
    order = [*all_ids[2:15], all_ids[1], *all_ids[15:18], all_ids[0], *all_ids[18:]]
    seen: dict[str, int] = {}
    for asked, size in zip(generations, (10, 3, None), strict=True):
        index = build(out, asked, add=True, rows_per_shard=size)
        assert index == build(out, asked, add=True, rows_per_shard=size), "nothing more to add"
        assert index == build(out, asked), "known as finished, whoever asks"
        if len(asked) > 13:
            assert index == build(out, asked[::-1], rows_per_shard=None)
        assert inodes(out).items() >= seen.items()
        seen = inodes(out)
        features = FeatureSet(out)
        assert features.ids == order[: len(asked)]
        assert [e.first_row for e in index.shards] == np.cumsum(
            [0, *(e.rows for e in index.shards[:-1])]
        ).tolist()
        good = [one for one in asked if one not in (all_ids[3], all_ids[17])]
        expected = [feature(int(one[:-4].split("-")[1])) for one in good]
        np.testing.assert_array_equal(features.read(good), np.stack(expected))
    assert sorted(seen) == [
        "shard-00000-of-00002.h5",
        "shard-00001-of-00002.h5",
        "shard-00002-of-00004.h5",
        "shard-00003-of-00004.h5",
        "shard-00004-of-00006.h5",
        "shard-00005-of-00006.h5",
    ]
    before = contents(tmp_path)
    damaged = out / "shard-00003-of-00004.h5"
    for data in (before[f"out/{damaged.name}"][:1000], None):
        damaged.unlink() if data is None else damaged.write_bytes(data)
        with pytest.raises(ShardError, match="missing or damaged"):
            build(out, [*all_ids, "more-30.jpg"], add=True)
        build(out, all_ids)
        assert contents(tmp_path) == before, "a damaged shard of a grown set is made again"


@pytest.mark.parametrize("sizes", [[(5, 2)], [(1, 9), (4, 3)], [(6, 3), (7, 9), (8, 1)]])
def test_a_grown_plan_covers_every_row_once(sizes: list[tuple[int, int]]) -> None:
    plan = None
    for rows, rows_per_shard in sizes:
        plan = ShardPlan(rows, rows_per_shard, plan)
    assert plan is not None
    spans = [plan.span(shard) for shard in range(plan.shards)]
    assert [row for span in spans for row in range(span.start, span.stop)] == list(range(rows))
    for shard, span in enumerate(spans):
        assert {plan.shard_of(row) for row in range(span.start, span.stop)} == {shard}
    named = [(plan.file_name(shard), len(span)) for shard, span in enumerate(spans)]
    again = plan_of(named, rows_per_shard)
    assert [again.span(shard) for shard in range(again.shards)] == spans
    for wrong in ([], named[1:], [*named, named[-1]]):
        with pytest.raises(PlanError):
            plan_of(wrong, rows_per_shard)


@pytest.mark.parametrize("rows", [[], [3], [0, 1, 2], [0, 2, 3, 9]])
def test_runs_hold_just_the_rows(rows: list[int]) -> None:
    found = runs(np.array(rows, np.int64))
    assert [row for span in found for row in range(span.start, span.stop)] == rows
    assert all(a.stop < b.start for a, b in pairwise(found))


def test_what_does_not_fit_is_not_added(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(out, ids(ROWS)[:13])
    before = contents(tmp_path)
    for asked, add, found in (
        (ids(ROWS), False, "add them with --add"),
        (ids(ROWS)[1:], True, "not among the 22 asked for"),
        (ids(ROWS)[1:13], False, "not among the 12 asked for"),
    ):
        with pytest.raises(OtherShard, match=found):
            build(out, asked, add=add)
    with pytest.raises(OtherShard, match="dataset 'made', not 'other'"):
        build(out, ROWS, add=True, dataset="other")
    with pytest.raises(OtherShard, match="float16"):
        build(out, ROWS, add=True, dtype="float16")
    assert contents(tmp_path) == before


def test_an_interrupted_addition_goes_on(tmp_path: Path) -> None:
    for name, stops in (("whole", ()), ("stopped", (1, 1))):
        out = tmp_path / name / "out"
        build(out, ids(ROWS)[:13])
        for stop_after in stops:
            with pytest.raises(KeyboardInterrupt):
                build(out, ROWS, add=True, stop_after=stop_after)
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD, add=True) as making:
        assert making.pending() == [Span(21, 23)]
    for name in ("whole", "stopped"):
        build(tmp_path / name / "out", ROWS, add=True)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_repeated_ids_are_named(tmp_path: Path) -> None:
    twice = [f"n{n}" for n in range(7)] * 2
    with pytest.raises(ShardError, match=r"7 of the ids .* first \['n0', .*'n4'\];"):
        ShardBuild(tmp_path / "out", header(), ["once", *twice])


def test_shards_of_several_versions_say_so_each(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(out, ROWS, failed=(12,), created_by="old")
    before = contents(tmp_path)
    build(out, ROWS, created_by="new")
    assert contents(tmp_path) == before
    index = build(out, ROWS, failed=(), redo=True, created_by="new")
    assert index.header.created_by == "old"
    assert [entry.created_by for entry in index.shards] == [None, "new", None]
    assert read_index(out) == index
    assert contents(tmp_path)["out/index.json"].count(b"created_by") == 2


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
    """One byte too few for the shard: its rows are kept in pieces, which are smaller."""
    compress = task == "compress"
    build(tmp_path / "whole" / "out", ROWS, compress=compress)
    whole = contents(tmp_path / "whole")
    size = len(whole["out/shard-00000-of-00003.h5"])
    for limit, kept in ((size - 1, 10), (2000, 0), (100, 0)):
        out = tmp_path / str(limit) / "out"
        run = program(out, "os.fsync", -1, task, limit)
        assert run.returncode == 1, run.stderr
        assert "the same command goes on" in run.stderr
        left = [path for path in out.parent.rglob("*") if path.is_file()]
        assert not [path for path in left if not path.name.startswith(("piece-", "out.lock"))]
        with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD, compress) as making:
            assert making.rows_done == kept
        build(out, ROWS, compress=compress)
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
        ShardBuild(Path(), header(), ids(ROWS), ROWS_PER_SHARD) as making,
        pytest.raises(ShardError, match="another process"),
        ShardBuild(tmp_path / "link", header(), ids(ROWS), ROWS_PER_SHARD),
    ):
        pass
    assert making.work.parent == tmp_path / "disk" / ".work"
    assert making.rows_done == 4
    build(Path(), ROWS)
    assert contents(target.parent) == whole
    assert (tmp_path / "link").is_symlink()


def test_work_on_another_disk_is_refused_before_it_begins(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second disk")
    (tmp_path / ".work").symlink_to(other)
    with pytest.raises(ShardError, match="different disks"):
        build(tmp_path / "out", ROWS)


def test_two_processes_at_once_make_one_right_result(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out = tmp_path / "both" / "out"
    sample = str(Path(__file__).with_name("sample.py"))
    command = [sys.executable, "-B", sample, str(out), str(ROWS), "os.fsync", "-1"]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [run.communicate()[1] for run in runs]
    assert 0 in [run.returncode for run in runs], errors
    for run, text in zip(runs, errors, strict=True):
        assert run.returncode == 0 or "another process is writing" in text
    assert contents(out.parent) == whole


def test_rows_may_come_from_another_thread(tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "threads" / "out"
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as making:
        writer = Thread(target=feed, args=(making, (3, 17)))
        writer.start()
        writer.join()
        making.publish()
    assert contents(out.parent) == whole


def test_a_refused_block_leaves_those_before_it(tmp_path: Path) -> None:
    arguments = (tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD)
    bad = block(4, 8)
    bad.features[1] = np.inf
    with ShardBuild(*arguments) as making:
        making.append(0, block(0, 4))
        with pytest.raises(ShardError, match=ids(ROWS)[5]):
            making.append(4, bad)
        assert making.pending()[0] == Span(4, 10)
    with ShardBuild(*arguments) as making:
        assert making.rows_done == 4


def test_a_published_shard_that_hangs_hdf5_is_made_again(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit of the length that stands before a text in HDF5's heap: an endless loop in 2.0."""
    monkeypatch.setattr(probe, "SECONDS", 3.0)
    build(tmp_path / "set" / "out", ROWS)
    path = tmp_path / "set" / "out" / "shard-00001-of-00003.h5"
    data = bytearray(path.read_bytes())
    data[data.index(ids(ROWS)[15].encode()) - 7] ^= 1
    path.write_bytes(data)
    build(tmp_path / "set" / "out", ROWS)
    assert contents(tmp_path / "set") == whole


def test_the_root_is_no_output() -> None:
    with pytest.raises(OutputError, match="root"):
        build(Path("/"), ROWS)


def test_to_add_is_offered_only_where_it_can_be_asked_for(tmp_path: Path) -> None:
    build(tmp_path / "out", ids(ROWS)[:13])
    for offered, arguments in ((True, (False,)), (False, ())):
        making = ShardBuild(
            tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD, False, None, *arguments
        )
        with pytest.raises(OtherShard, match="10 of the 23 rows") as caught, making:
            pass
        assert ("--add" in str(caught.value)) is offered


def test_an_altered_index_cannot_plan_without_end() -> None:
    assert plan_of([("shard-00000-of-00001.h5", 10**12)], 10**12).shards == 1
    for shards in ([("shard-00000-of-00001.h5", 10**12)], [("shard-00000-of-00002.h5", 1)] * 2):
        with pytest.raises(PlanError):
            plan_of(shards, 1)
