"""`--workers` and `--scheduler`: the bytes of one process, and what a run says of itself."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.progress import Monitor
from pipeline.store.workers.place import Executor, Place
from tests.project import Call
from tests.stages.test_train_command import NAME, experiment
from tests.store.workers.tasks import serial

__all__ = ["experiment"]

LITE = "efficientnet-lite0-pool"
EXTRACT = ("extract", "--recipe", LITE, "--dataset", "data/scenes", "--rows-per-shard", 16)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run in this process, as they would on workers."""

    @contextmanager
    def executor(self: Place, monitor: Monitor, gpu: bool) -> Iterator[Executor]:
        yield serial

    monkeypatch.setattr(Place, "executor", executor)


@pytest.mark.usefixtures("in_full")
def test_images_by_local_workers(
    project: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One damaged picture; a real worker, which has all cores to itself."""
    # The default of the worker, whose process the suite's smaller one does not reach.
    monkeypatch.setattr("pipeline.images.batches.CROPS_PER_BATCH", 8)
    Path("data/scenes/images/scene-00010.png").write_bytes(b"damaged")
    few = (*EXTRACT, "--limit", 20)
    assert pipeline(*few, "--out", "one", "--summary", "one.json").status == 3
    ended = pipeline(*few, "--out", "two", "--workers", 1, "--summary", "two.json")
    assert ended.status == 3, ended.stderr
    assert "working on 1 local worker" in ended.stderr
    assert "20 computed" in ended.stderr
    assert files(Path("two")) == files(Path("one"))
    one, two = (json.loads(Path(name).read_text()) for name in ("one.json", "two.json"))
    for found in (one, two):
        assert found["seconds_of_work"].keys() == {"read", "decode", "forward", "write"}
        assert (found["rows"], found["rows_computed"], found["failed_rows"]) == (20, 20, 1)
    assert (one["where"], two["where"]) == ("one process", "1 local worker")


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


def test_captions_by_workers(project: Path, pipeline: Call, one_by_one: None) -> None:
    text = ("text", "--encoder", "mean+bow", "--dataset", "data/scenes", "--rows-per-shard", 70)
    assert pipeline(*text, "--out", "one").status == 0
    ended = pipeline(*text, "--out", "two", "--workers", 2, "--summary", "two.json")
    assert ended.status == 0, ended.stderr
    assert files(Path("two")) == files(Path("one"))
    assert json.loads(Path("two.json").read_text())["rows_computed"] == 300


@pytest.mark.parametrize("average", [False, True])
def test_embeddings_by_workers(
    experiment: Path,
    pipeline: Call,
    one_by_one: None,
    monkeypatch: pytest.MonkeyPatch,
    average: bool,
) -> None:
    from pipeline.heads import embed as job
    from pipeline.heads import embedding_source
    from pipeline.store.jobs.options import Storage
    from tests.stages.test_train_command import configure

    monkeypatch.setattr(embedding_source, "CHUNK_ROWS", 7)
    monkeypatch.setattr(job, "_STORAGE", Storage(rows_per_shard=14))
    if average:
        configure(head="ridge", settings={}, average_captions=True)
    assert pipeline("train", "--experiment", NAME).status == 0
    embed = ("embed", "--experiment", NAME, "--split", "train")
    assert pipeline(*embed, "--out", "one.h5").status == 0
    ended = pipeline(*embed, "--out", "two.h5", "--workers", 2, "--summary", "two.json")
    assert ended.status == 0, ended.stderr
    assert Path("two.h5").read_bytes() == Path("one.h5").read_bytes()
    assert [path.name for path in Path(".work").glob("two.h5*")] == ["two.h5.lock"]
    found = json.loads(Path("two.json").read_text())
    assert found["seconds_of_work"].keys() == {"read", "forward", "write"}


def test_embedding_resumes_from_the_finished_rows(
    experiment: Path, pipeline: Call, one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.heads import embed as job
    from pipeline.heads import embedding_source
    from pipeline.store.jobs.options import Storage

    monkeypatch.setattr(embedding_source, "CHUNK_ROWS", 50)
    monkeypatch.setattr(job, "_STORAGE", Storage(rows_per_shard=50))
    assert pipeline("train", "--experiment", NAME).status == 0
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
    damaged, sound = sorted(Path(".work").glob("two.h5-*/**/shard-*.h5"))[:2]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    before, kept = len(made), sound.read_bytes()
    assert pipeline(*embed, "--out", "two.h5", "--workers", 2).status == 0
    assert len(made) > before
    assert kept
    assert Path("two.h5").read_bytes() == Path("one.h5").read_bytes()
    assert list(Path(".work").glob("two.h5-*")) == []


def test_contradictions_are_wrong_usage(project: Path, pipeline: Call) -> None:
    for options, text in (
        (("--workers", 2, "--scheduler", "tcp://a:1"), "not both"),
        (("--resource", "GPU=1"), "--resource requires a --scheduler"),
        (("--scheduler", "tcp://a:1", "--resource", "GPU"), "write it as in GPU=1"),
        (("--workers", 0), "not in the range"),
    ):
        ended = pipeline(*EXTRACT, "--out", "out", *options)
        assert (ended.status, text in ended.stderr) == (2, True), ended.stderr
    assert not Path("out").exists()
