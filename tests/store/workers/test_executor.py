"""Shards of workers: the bytes of one process, whichever worker makes them and how often."""

import errno
import fcntl
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.store.builder import unfinished_shard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.errors import FileReadError
from pipeline.store.jobs import worker
from pipeline.store.jobs.worker import ShardTask, compute_on_workers, compute_shard, require_same
from pipeline.store.progress import Stopwatch, no_progress
from pipeline.store.shards.format import OtherShard, ShardError
from pipeline.store.shards.plan import Span
from pipeline.store.workers.shipping import shared
from tests.store.shards.factories import ROWS_PER_SHARD, build, contents, feature, header, ids
from tests.store.workers.tasks import MadeSource, build_made, serial

ROWS = 23


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """The bytes of a build in one process."""
    build(tmp_path / "whole" / "out", ROWS)
    return contents(tmp_path / "whole")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing appears late here."""
    monkeypatch.setattr(worker, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(worker, "_SECONDS_BETWEEN_REPORTS", 0.0)
    worker._require_shared.cache_clear()


def unfinished(out: Path, **options: Any) -> ShardBuild:
    return ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD, **options)


def tasks_of(building: ShardBuild, source: Any = None) -> list[ShardTask]:
    """Return the tasks of the unfinished shards, as workers receive them."""
    run, source = building.work / "run-0123456789ab", source or MadeSource(building.ids)
    run.touch()
    tasks = (
        ShardTask(
            run, shard, source.part(shard.first_row + np.arange(len(shard.ids)), None, shared), ()
        )
        for shard in building.unfinished()
    )
    return [pickle.loads(pickle.dumps(task)) for task in tasks]


@dataclass(frozen=True)
class Interrupted(MadeSource):
    """The made set, which calls a function after some batches."""

    then: Any = None

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[Any]:
        for number, found in enumerate(super().compute(spans, watch)):
            self.then(number)
            yield found

    def part(self, rows: Any, threads: int | None, ship: Any) -> Any:
        chosen = replace(self, ids=[self.ids[row] for row in rows.tolist()])
        return lambda: chosen


def test_tasks_are_made_one_by_one_and_know_their_own_rows_alone(tmp_path: Path) -> None:
    made: list[int] = []
    source = MadeSource(ids(ROWS))
    with unfinished(tmp_path / "out") as building:

        def part_of(span: Span) -> Any:
            made.append(span.start)
            return source.part(np.arange(span.start, span.stop), None, shared)

        def executor(task: Any, jobs: Any, on_progress: Any, stop: Any) -> Any:
            for number, job in jobs:
                assert len(made) == number + 1
                assert len(pickle.dumps(job)) < 5000
                yield task(number, job, on_progress)

        compute_on_workers(building, part_of, executor)
    assert made == [0, 10, 20]


@pytest.mark.parametrize("compress", [False, True])
def test_rows_made_again_and_added_ones(tmp_path: Path, compress: bool) -> None:
    for folder in ("here", "there"):
        out = tmp_path / folder / "out"
        build(out, ROWS, failed=(5, 6), compress=compress)
        with unfinished(out) as building:
            building.redo([4, 5, 9, 22])
            if folder == "there":
                for task in tasks_of(building):
                    result = compute_shard(task.shard.number, task, no_progress)
                    building.accept(result.number, result.finished)
                building.publish()
            else:
                building.fill(MadeSource(building.ids).compute)
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


@pytest.mark.parametrize("stop_after", range(3))
def test_a_lost_worker_that_goes_on_beside_its_successor(
    tmp_path: Path, whole: dict[str, bytes], stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins after some batches of the first, ends, and then the first ends."""
    monkeypatch.setattr(unfinished_shard, "FLUSH_SECONDS", 0.0)
    out = tmp_path / "twice" / "out"
    with unfinished(out) as building:
        tasks = tasks_of(building)
        successor: list[Any] = []

        def then(number: int) -> None:
            if number == stop_after:
                successor.append(compute_shard(0, again, no_progress))

        slow = Interrupted(building.ids[:10], flush_seconds=0.0, then=then)
        again = pickle.loads(pickle.dumps(tasks[0]))
        lost = compute_shard(0, replace(tasks[0], part=lambda: slow), no_progress)
        assert lost.finished.entry == successor[0].finished.entry
        building.accept(0, successor[0].finished)
        with pytest.raises(ShardError, match="was not requested"):
            building.accept(0, lost.finished)
        building.fill(MadeSource(building.ids).compute)
    assert contents(out.parent) == whole


def test_the_next_worker_computes_only_what_a_lost_one_has_not_saved(tmp_path: Path) -> None:
    """The first is killed after two batches; a damaged record costs its own row alone."""
    with unfinished(tmp_path / "out") as building:
        task, again = tasks_of(building)[0], tasks_of(building)[0]

        def then(number: int) -> None:
            if number == 2:
                raise KeyboardInterrupt

        lost = Interrupted(building.ids[:10], flush_seconds=0.0, then=then)
        with pytest.raises(KeyboardInterrupt):
            compute_shard(0, replace(task, part=lambda: lost), no_progress)
        (journal,) = building.work.glob("00000/*.journal")
        data = bytearray(journal.read_bytes())
        data[data.index(feature(2).tobytes())] ^= 1
        journal.write_bytes(data)
        asked: list[Span] = []

        @dataclass(frozen=True)
        class Watched(MadeSource):
            def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[Any]:
                asked.extend(spans)
                return super().compute(spans, watch)

        source = Watched(building.ids[:10])
        result = compute_shard(0, replace(again, part=lambda: source), no_progress)
        assert asked == [Span(2, 3), Span(8, 10)]
        building.accept(0, result.finished)
        building.fill(MadeSource(building.ids).compute)
    build(tmp_path / "whole" / "out", ROWS)
    assert contents(tmp_path / "whole" / "out") == contents(tmp_path / "out")


def test_a_shard_that_was_finished_but_not_reported_is_taken(tmp_path: Path) -> None:
    with unfinished(tmp_path / "out") as building:
        task = tasks_of(building)[1]
        first = compute_shard(1, task, no_progress)
        again = replace(tasks_of(building)[1], part=pytest.fail)
        assert compute_shard(1, again, no_progress).finished == first.finished


def test_a_worker_stops_when_the_run_has_ended_and_keeps_its_rows(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out = tmp_path / "again" / "out"
    with unfinished(out) as building:
        task = tasks_of(building)[0]

        def then(number: int) -> None:
            if number == 1:
                task.run.unlink()
            assert number < 2, "continues after the end"

        source = Interrupted(building.ids[:10], then=then)
        with pytest.raises(ShardError, match="was cancelled"):
            compute_shard(0, replace(task, part=lambda: source), no_progress)
        building.find_rows()
        assert building.rows_done == 8
    assert [path.suffix for path in building.work.glob("*/*")] == [".journal"]
    build_made(out, ROWS, serial)
    assert contents(out.parent) == whole


def test_a_worker_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    with unfinished(tmp_path / "out") as building:
        task = tasks_of(building)[0]
        with pytest.raises(ShardError, match=r"does not see .*run-.*mount it there"):
            compute_shard(0, replace(task, run=tmp_path / "elsewhere" / "run-0"), no_progress)
        result = compute_shard(0, task, no_progress)
        path = result.finished.path
        hidden = path.rename(tmp_path / "hidden.h5")
        with pytest.raises(ShardError, match=r"wrote .*does not exist on"):
            worker._received(result, building)
        hidden.rename(path)
        entry = replace(result.finished.entry, sha256="0" * 64)
        other = replace(result, finished=replace(result.finished, entry=entry))
        with pytest.raises(ShardError, match="is not the file that worker"):
            worker._received(other, building)
        building.accept(0, worker._received(result, building))


def test_a_file_that_the_command_alone_sees_ends_the_run(tmp_path: Path) -> None:
    """A row whose file neither sees is missing."""
    files = [tmp_path / f"{row}.jpg" for row in range(ROWS)]
    source = MadeSource(ids(ROWS), files=files)

    def part_of(span: Span) -> Any:
        return source.part(np.arange(span.start, span.stop), None, shared)

    with unfinished(tmp_path / "out") as building:
        with pytest.raises(FileReadError, match=r"does not see .*5.jpg"):
            compute_on_workers(building, part_of, serial, np.arange(ROWS) != 5)
        assert compute_on_workers(building, part_of, serial, np.ones(ROWS, bool)).failed_rows == 23


def test_other_software_or_weights_on_a_worker_are_refused(tmp_path: Path) -> None:
    require_same(header(), header())
    with unfinished(tmp_path / "out") as building:
        for changes, found in (
            ({"created_by": "torch 1"}, "runs torch 1"),
            ({"weights": "mine"}, "has weights 'mine'"),
        ):
            (task, *_) = tasks_of(building, MadeSource(building.ids, header(**changes)))
            with pytest.raises(OtherShard, match=found):
                compute_shard(0, task, no_progress)


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
    assert {path.name for path in (out.parent / ".work").iterdir()} == {".gitignore", "out.lock"}
