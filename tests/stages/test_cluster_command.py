"""`--workers` and `--scheduler`: the bytes of one process, and what a run says of itself."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.heads import embed as job
from pipeline.heads import embedding_source
from pipeline.store.jobs.options import Storage
from pipeline.store.progress import Monitor
from pipeline.store.workers.place import Executor, Place
from tests.project import Call, contents
from tests.stages.conftest import LITE, NAME
from tests.store.workers.tasks import serial

EXTRACT = ("extract", "--recipe", LITE, "--dataset", "data/scenes", "--rows-per-shard", 16)


@pytest.mark.usefixtures("in_full")
def test_images_by_local_workers(
    project: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One damaged picture; a real worker, which has all cores to itself."""
    # The default of the worker, whose process the suite's smaller one does not reach.
    monkeypatch.setattr("pipeline.images.batches.CROPS_PER_BATCH", 8)
    Path("data/scenes/images/scene-00010.png").write_bytes(b"damaged")
    few = (*EXTRACT, "--rows-per-shard", 8, "--limit", 12)
    assert pipeline(*few, "--out", "one", "--summary", "one.json").status == 3
    ended = pipeline(*few, "--out", "two", "--workers", 1, "--summary", "two.json")
    assert ended.status == 3, ended.stderr
    assert "working on 1 local worker" in ended.stderr
    assert "12 computed" in ended.stderr
    assert contents(Path("two")) == contents(Path("one"))
    one, two = (json.loads(Path(name).read_text()) for name in ("one.json", "two.json"))
    for found in (one, two):
        assert found["seconds_of_work"].keys() == {"read", "decode", "forward", "write"}
        assert (found["rows"], found["rows_computed"], found["failed_rows"]) == (12, 12, 1)
    assert (one["where"], two["where"]) == ("one process", "1 local worker")


def test_a_missing_package_is_known_before_anything_is_loaded(
    project: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delattr("pipeline.images.extract.extract")
    for option in (("--workers", 2), ("--scheduler", "tcp://a:1")):
        ended = pipeline(*EXTRACT, "--out", "out", *option)
        assert (ended.status, "workers need the package distributed" in ended.stderr) == (1, True)
        assert ", or omit --workers and --scheduler" in ended.stderr


def test_images_that_a_worker_does_not_see(
    project: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture goes once the job is written: the command's machine still had it then."""
    picture = Path("data/scenes/images/scene-00040.png")

    @contextmanager
    def executor(self: Place, monitor: Monitor, gpu: bool) -> Iterator[Any]:
        def elsewhere(*given: Any) -> Any:
            picture.unlink()
            return serial(*given)

        yield elsewhere

    monkeypatch.setattr(Place, "executor", executor)
    ended = pipeline(*EXTRACT, "--out", "out", "--workers", 1)
    assert ended.status == 1
    assert f"does not see {picture.absolute()}" in ended.stderr, ended.stderr
    assert not Path("out").exists()


def test_embedding_resumes_from_the_finished_rows(
    copy: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks run in this process, as they would on workers."""

    @contextmanager
    def executor(self: Place, monitor: Monitor, gpu: bool) -> Iterator[Executor]:
        yield serial

    monkeypatch.setattr(Place, "executor", executor)
    monkeypatch.setattr(embedding_source, "CHUNK_ROWS", 20)
    monkeypatch.setattr(job, "_STORAGE", Storage(rows_per_shard=20))
    embed = ("embed", "--experiment", NAME, "--split", "train")
    assert pipeline(*embed, "--out", "one.h5").status == 0
    made: list[int] = []
    once = embedding_source.EmbeddingSource._embed

    def counted(self: Any, rows: Any, watch: Any) -> Any:
        made.append(len(self.rows))
        if len(made) == 5:
            raise KeyboardInterrupt
        return once(self, rows, watch)

    monkeypatch.setattr(embedding_source.EmbeddingSource, "_embed", counted)
    assert pipeline(*embed, "--out", "two.h5", "--workers", 2).status == 130
    damaged = min(Path(".work").glob("two.h5-*/**/shard-*.h5"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    before = len(made)
    ended = pipeline(*embed, "--out", "two.h5", "--workers", 2, "--summary", "two.json")
    assert ended.status == 0, ended.stderr
    assert len(made) > before
    assert Path("two.h5").read_bytes() == Path("one.h5").read_bytes()
    assert not [*Path(".work").glob("two.h5-*")]
    seconds = json.loads(Path("two.json").read_text())["seconds_of_work"]
    assert seconds.keys() == {"read", "forward", "write"}
