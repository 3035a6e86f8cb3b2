"""A finished run is found to be so at once, unless anything that it depends on has changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.experiments.finished_run import FinishedRun
from pipeline.experiments.layout import Layout
from pipeline.retrieval.tables import Row
from pipeline.store.jobs import finished
from pipeline.store.shards.index import INDEX_FILE
from tests.store.jobs.test_finished import write_dataset

TABLES: dict[str, Row] = {"mine": {"rsum": 1.5, "num_images": 3, "dataset": "mine"}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset, weights that the call names, and outputs of four steps."""
    monkeypatch.setattr(finished, "_SETTLED_NS", -(10**18))
    if tmp_path.stat().st_dev not in finished._devices_with_times():
        pytest.skip("needs a file system whose times of change are the kernel's")
    write_dataset(tmp_path / "mine")
    layout = Layout(tmp_path / "mine", tmp_path)
    features, text, head = layout.features("r"), layout.text("mean"), layout.head("mine")
    for out in (features, text, head, layout.encoder("mean")):
        out.mkdir(parents=True)
    for out in (features, text):
        (out / INDEX_FILE).write_text("{}")
        (out.parent / ".work").mkdir()
        finished.finished_path(out).write_text("{}")
    (head / "head.json").write_text("{}")
    layout.embeddings("mine").parent.mkdir(parents=True)
    layout.embeddings("mine").write_text("rows")
    (layout.encoder("mean") / "encoder.json").write_text("{}")
    (tmp_path / "w.pth").write_text("weights")
    return tmp_path


def _run(folder: Path, names: tuple[str, ...] = ("mine",), seed: int = 0) -> FinishedRun:
    layout = Layout(folder / "mine", folder)
    return FinishedRun(layout, names, [{"weights": str(folder / "w.pth")}, seed])


def _write(folder: Path) -> None:
    layout = Layout(folder / "mine", folder)
    outs = [layout.features("r"), layout.text("mean"), layout.head("mine")]
    _run(folder).write([*outs, layout.embeddings("mine")], TABLES)


CHANGES: dict[str, Callable[[Path], object]] = {
    "an image": lambda folder: (folder / "mine/files/1.png").write_bytes(b"another"),
    "a lost image": lambda folder: (folder / "mine/files/1.png").unlink(),
    "the captions": lambda folder: write_dataset(folder / "mine", "a cat"),
    "the weights": lambda folder: (folder / "w.pth").write_text("others"),
    "a shard": lambda folder: (folder / "features/mine/r" / INDEX_FILE).write_text("[]"),
    "a new file": lambda folder: (folder / "heads/mine/mine/other").write_text(""),
    "the embeddings": lambda folder: (folder / "embeddings/mine/mine.h5").unlink(),
    "the encoder": lambda folder: (folder / "text/mine/mean.encoder/encoder.json").unlink(),
    "a set that is not finished": lambda folder: finished.finished_path(
        folder / "text/mine/mean"
    ).unlink(),
    "unfinished work": lambda folder: (folder / "features/mine/.work/r-0123456789abcdef").mkdir(),
}


def test_it_is_found_with_its_tables(folder: Path) -> None:
    assert _run(folder).tables() is None
    _write(folder)
    assert _run(folder).tables() == TABLES
    assert _run(folder, seed=1).tables() is None
    assert _run(folder, ("mine", "other")).tables() is None


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_seen(folder: Path, change: str) -> None:
    _write(folder)
    CHANGES[change](folder)
    assert _run(folder).tables() is None


def test_changed_tables_are_not_believed(folder: Path) -> None:
    _write(folder)
    (record,) = (folder / ".work").glob("run-mine-*.finished")
    record.write_text(record.read_text().replace("1.5", "2.5"))
    assert _run(folder).tables() is None


def test_nothing_is_recorded_while_files_are_changing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(folder)
    monkeypatch.setattr(finished, "_SETTLED_NS", 10**18)
    _write(folder)
    monkeypatch.setattr(finished, "_SETTLED_NS", -(10**18))
    assert _run(folder).tables() is None
