"""Shards of a job: the bytes of one process, whoever makes them and how often."""

import errno
import fcntl
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.builder import job, job_ref, partial_shard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.builder.job import make_shard, read_job
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import OtherShard, RowBlock, ShardError
from pipeline.store.shards.plan import Span
from tests.store.shards.factories import ROWS_PER_SHARD, block_of, build, contents, header, ids
from tests.store.workers.tasks import FAILED, build_made, make_made_shard, serial

ROWS = 23


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """The bytes of a build in one process."""
    build(tmp_path / "whole" / "out", ROWS)
    return contents(tmp_path / "whole")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing appears late here."""
    monkeypatch.setattr(job_ref, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(job, "_SECONDS_BETWEEN_REPORTS", 0.0)


def unfinished(out: Path, **options: Any) -> ShardBuild:
    return ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD, **options)


def nothing(rows: Span) -> None:
    """Rows that are made from nothing."""


def ignore(*progress: object) -> None:
    """Take no notice."""


def rows_of(numbers: Span) -> RowBlock:
    chosen = ids(ROWS)[numbers.start : numbers.stop]
    return block_of([int(row_id[:-4].split("-")[1]) for row_id in chosen], FAILED)


def test_workers_give_the_bytes_of_one_process(tmp_path: Path, whole: dict[str, bytes]) -> None:
    seen: list[tuple[int, int, int]] = []
    build_made(tmp_path / "workers" / "out", ROWS, serial, lambda *done: seen.append(done))
    assert contents(tmp_path / "workers") == whole
    assert seen[0] == (0, ROWS, 0)
    assert seen[-1] == (ROWS, ROWS, 2)
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


@pytest.mark.parametrize("compress", [False, True])
def test_rows_made_again_and_added_ones(tmp_path: Path, compress: bool) -> None:
    options = {"compress": compress}
    build(tmp_path / "here" / "out", ROWS, failed=(5, 6), **options)
    build(tmp_path / "there" / "out", ROWS, failed=(5, 6), **options)
    for folder in ("here", "there"):
        with unfinished(tmp_path / folder / "out") as building:
            building.redo([4, 5, 9, 22])
            if folder == "there":
                with building.submitted(nothing, {}) as submitted:
                    for shard in building.pending_shards():
                        building.accept(make_made_shard(submitted.refs[shard], shard, ignore))
            else:
                for span in building.pending():
                    building.append(span.start, rows_of(span))
            building.publish()
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


@pytest.mark.parametrize("stop_after", range(4))
def test_a_lost_worker_that_goes_on_beside_its_successor(
    tmp_path: Path, whole: dict[str, bytes], stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins after some batches of the first, ends, and then the first ends."""
    monkeypatch.setattr(partial_shard, "PIECE_SECONDS", 0.0)
    out = tmp_path / "twice" / "out"

    with unfinished(out) as building, building.submitted(nothing, {}) as submitted:
        successor: list[Any] = []

        def slow(job: Any, spans: Any, watch: Stopwatch) -> Any:
            batches = [batch for span in spans for batch in span.batches(3)]
            for number, batch in enumerate(batches):
                if number == stop_after:
                    successor.append(make_made_shard(submitted.refs[0], 0, ignore))
                yield batch.start, rows_of(batch)

        lost = make_shard(submitted.refs[0], 0, slow, ignore)
        assert lost.finished.entry == successor[0].finished.entry
        building.accept(successor[0])
        with pytest.raises(ShardError, match="was not requested"):
            building.accept(lost)
        for shard in (1, 2):
            building.accept(make_made_shard(submitted.refs[shard], shard, ignore))
        building.publish()
    assert contents(out.parent) == whole


def test_a_shard_that_was_finished_but_not_reported_is_taken(tmp_path: Path) -> None:
    with unfinished(tmp_path / "out") as building, building.submitted(nothing, {}) as submitted:
        first = make_made_shard(submitted.refs[1], 1, ignore)
        again = make_made_shard(submitted.refs[1], 1, ignore)
        assert (first.computed, again.computed) == (10, 0)
        assert first.finished == again.finished


def test_a_worker_stops_when_the_run_has_ended_and_keeps_its_rows(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out = tmp_path / "again" / "out"
    with unfinished(out) as building, building.submitted(nothing, {}) as submitted:

        def ended(job: Any, spans: Any, watch: Stopwatch) -> Any:
            yield 0, rows_of(Span(0, 4))
            submitted.cancel()
            yield 4, rows_of(Span(4, 8))
            raise AssertionError("went on after the end")

        with pytest.raises(ShardError, match="was cancelled"):
            make_shard(submitted.refs[0], 0, ended, ignore)
    assert building.rows_done == 8
    left = [str(path.relative_to(building.work)) for path in building.work.glob("*/*")]
    assert len(left) == 1
    assert left[0].startswith("00000/piece-000000000-000000008-")
    build_made(out, ROWS, serial)
    assert contents(out.parent) == whole


def test_leftovers_of_dead_runs_are_removed(tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "again" / "out"
    with unfinished(out) as building:
        pass
    folder = building.work / "00000"
    folder.mkdir(parents=True)
    (folder / "shard-00000-of-00003.h5.0123456789ab.part").write_bytes(b"half")
    dead = building.work / "job-0123456789ab.jsonl"
    dead.write_text("{}")
    with unfinished(out):
        assert not dead.exists(), "workers that follow it stop"
    build_made(out, ROWS, serial)
    assert contents(out.parent) == whole


def test_a_worker_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    with unfinished(tmp_path / "out") as building, building.submitted(nothing, {}) as submitted:
        ref = submitted.refs[0]
        with pytest.raises(ShardError, match=r"does not see .*job-.*mount it there"):
            make_made_shard(replace(ref, path=tmp_path / "elsewhere" / "job-0.jsonl"), 0, ignore)
        for line in ("common", "own"):
            other = replace(getattr(ref, line), sha256="0" * 64)
            with pytest.raises(ShardError, match="sees another file"):
                make_made_shard(replace(ref, **{line: other}), 0, ignore)
        made = make_made_shard(submitted.refs[0], 0, ignore)
        path = building.work / "00000" / made.finished.entry.file
        hidden = path.rename(tmp_path / "hidden.h5")
        with pytest.raises(ShardError, match=r"wrote .*does not exist on"):
            building.accept(made)
        hidden.rename(path)
        other = replace(made.finished.entry, sha256="0" * 64)
        with pytest.raises(ShardError, match="is not the file that worker"):
            building.accept(replace(made, finished=replace(made.finished, entry=other)))
        building.accept(made)


def test_other_software_or_weights_on_a_worker_are_refused(tmp_path: Path) -> None:
    with unfinished(tmp_path / "out") as building, building.submitted(nothing, {}) as submitted:
        found = read_job(submitted.refs[0], 0)
        found.require_same(header())
        with pytest.raises(OtherShard, match="runs torch 1"):
            found.require_same(header(created_by="torch 1"))
        with pytest.raises(OtherShard, match="has weights 'mine'"):
            found.require_same(header(weights="mine"))


def test_a_task_reads_only_what_its_shard_needs(tmp_path: Path) -> None:
    def sources_of(rows: Span) -> list[str]:
        return [f"{row}.jpg" for row in range(rows.start, rows.stop)]

    with (
        unfinished(tmp_path / "out") as building,
        building.submitted(sources_of, {"x": 1}) as submitted,
    ):
        path = submitted.refs[0].path
        assert len(path.read_text().splitlines()) == 1 + 3
        for shard, span in enumerate([Span(0, 10), Span(10, 20), Span(20, 23)]):
            ref = submitted.refs[shard]
            assert len(pickle.dumps(ref)) < 1000
            found = read_job(ref, shard)
            assert (found.plan, found.settings) == (building.plan, {"x": 1})
            assert found.needed == [span]
            assert found.ids == ids(ROWS)[span.start : span.stop]
            assert found.sources == sources_of(span)
            # Nothing of the other lines is looked at.
            lines = path.read_bytes().splitlines(keepends=True)
            spoilt = [b"?" * len(line) for line in lines]
            spoilt[0], spoilt[1 + shard] = lines[0], lines[1 + shard]
            path.write_bytes(b"".join(spoilt))
            assert read_job(ref, shard) == found
            path.write_bytes(b"".join(lines))
    assert not path.exists()
    with pytest.raises(ShardError, match="was cancelled"):
        read_job(submitted.refs[0], 0)


def test_without_locks_two_writers_are_still_told_apart(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    out = tmp_path / "again" / "out"
    with (
        unfinished(out),
        pytest.raises(ShardError, match=r"is writing .*or was killed"),
        unfinished(out),
    ):
        pass
    build_made(out, ROWS, serial)
    assert contents(out.parent) == whole
    assert [path.name for path in (out.parent / ".work").iterdir()] == ["out.lock"]
