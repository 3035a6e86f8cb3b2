"""Steps that fail: the others are made, the system's errors stop all."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.prepare import prepare
from pipeline.experiments.layout import Layout
from pipeline.experiments.run import run
from pipeline.experiments.steps.step import Failure, Plan, Step
from pipeline.heads.presets.preset import OWN_VECTORS
from pipeline.store import extras
from pipeline.store.builder.locking import require_space
from pipeline.store.errors import FileReadError, MissingPackage, PipelineError
from pipeline.store.files import OutputError
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.format import ShardError
from pipeline.text import taggers
from tests.project import Recorder


@pytest.mark.parametrize(
    ("here", "dataset"), [("mine", "."), ("mine/images", ".."), ("mine", "../mine"), ("", "mine")]
)
def test_outputs_are_in_the_folder_called_data(
    here: str, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data/mine/images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "data" / here)
    assert Layout(dataset).features("x").resolve() == tmp_path / "data/features/mine/x"


def plan_of(folder: Path, failing: str = "", error: BaseException | None = None) -> Plan:
    """Features a and b; head x needs a, head y both, table t needs x."""
    plan = Plan(Layout(folder / "data"))
    needs = {"a": "", "b": "", "x": "a", "y": "ab", "t": "x"}

    def making(name: str) -> Callable[[Monitor], object]:
        def make(monitor: Monitor) -> object:
            if name == failing and error is not None:
                raise error
            return (folder / name).write_text(name)

        return make

    for name, others in needs.items():
        out, inputs = folder / name, tuple(folder / other for other in others)
        plan.add(Step("make", name, out, inputs, "", making(name)))
    return plan


@pytest.mark.parametrize(
    ("failing", "left_out", "made"),
    [("a", "xyt", "b"), ("x", "t", "aby"), ("b", "y", "axt"), ("t", "", "abxy")],
)
def test_what_does_not_need_a_failed_step_is_made(
    failing: str, left_out: str, made: str, tmp_path: Path
) -> None:
    monitor = Recorder()
    error = PipelineError("it is broken")
    changed, failures = plan_of(tmp_path, failing, error).make(monitor)
    assert changed == tuple(f"make {name}" for name in made)
    assert {path.name for path in failures} == {failing, *left_out}
    assert {*failures.values()} == {Failure(f"make {failing}", error)}
    assert {path.name for path in tmp_path.iterdir()} == {*made}
    for name in left_out:
        assert any(
            f"make {name}: skipped, since make {failing} failed" in line for line in monitor.lines
        )
    lacking = tuple(f"make {name}" for name in "abxyt" if name in failing + left_out)
    assert plan_of(tmp_path).make(QUIET) == (lacking, {})


@pytest.mark.parametrize(
    ("splits", "reason"),
    [
        (["train", "test"], "no split 'val' or 'dev' or 'validation' for validation"),
        (["val", "test"], "no split 'train' for train"),
        (["train"], "no split 'test' or"),
    ],
)
def test_what_is_missing_is_known_before_the_first_step(
    splits: list[str], reason: str, tmp_path: Path
) -> None:
    rows = [{"path": f"{s}.png", "caption": "a dog", "split": s} for s in splits]
    for row in rows:
        (tmp_path / row["path"]).touch()
    prepare(rows, tmp_path / "mine", root=tmp_path)
    with pytest.raises(DatasetError, match=reason):
        run("qian2018-baseline", tmp_path / "mine", root=tmp_path / "made", size="tiny")
    assert not (tmp_path / "made").exists()


def test_an_output_that_cannot_be_written_is_known_before_the_first_step(tmp_path: Path) -> None:
    rows = [{"path": f"{s}.png", "caption": "a dog", "split": s} for s in ("train", "val")]
    for row in rows:
        (tmp_path / row["path"]).touch()
    prepare(rows, tmp_path / "mine", root=tmp_path)
    (tmp_path / "evaluations").touch()
    with pytest.raises(OutputError, match="evaluations is a file"):
        run("qian2018-baseline", tmp_path / "mine", root=tmp_path, size="tiny")
    assert not (tmp_path / "features").exists()


@pytest.mark.parametrize("lacking", ["tagger", "trainer", "space"])
def test_packages_and_space_are_known_before_the_first_step(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"path": f"{s}.png", "caption": "a dog", "split": s} for s in ("train", "val")]
    for row in rows:
        (tmp_path / row["path"]).touch()
    prepare(rows, tmp_path / "mine", root=tmp_path)
    options: dict[str, Any] = {}
    if lacking == "space":
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
        named, reason = "qian2018-baseline", r"missing features need 0\.0 MB in .*, and 0\.0 MB are"
    elif lacking == "tagger":
        monkeypatch.setattr(taggers, "import_alone", not_installed)
        taggers._textblob.cache_clear()
        named, reason = "kiros2014-sc-nlm", r"'textblob' needs the package textblob \(No module"
    else:
        monkeypatch.setattr(extras, "find_spec", lambda name: None)
        options = {"word_vectors": {OWN_VECTORS: {"train": "fasttext", "dim": 8}}}
        named, reason = "kiros2014-lstm", "training needs the package fasttext-wheel"
    with pytest.raises((MissingPackage, OutputError), match=reason):
        run(named, tmp_path / "mine", root=tmp_path / "made", size="tiny", **options)
    assert not (tmp_path / "made").exists()


def not_installed(name: str) -> None:
    raise ModuleNotFoundError("No module named 'textblob'")


def full_disk() -> ShardError:
    error = ShardError("shard-00000-of-00001.h5 could not be written")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return error


def no_space() -> ShardError:
    with pytest.raises(ShardError, match="MB are free") as caught:
        require_space(Path.cwd(), 1 << 40, 1 << 20)
    return caught.value


@pytest.mark.parametrize(
    "error",
    [full_disk(), no_space(), FileReadError("a.jpg"), KeyboardInterrupt()],
    ids=["full", "no space", "unreadable", "interrupt"],
)
def test_errors_of_the_system_and_interrupts_stop_all(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as caught:
        plan_of(tmp_path, "b", error).make(QUIET)
    assert caught.value is error
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_step_that_checks_itself_counts_as_made_where_its_output_changed(tmp_path: Path) -> None:
    texts = iter(["one", "one", "two"])

    def read(file: Path) -> dict[str, str] | None:
        return {"text": file.read_text()} if file.is_file() else None

    def make(monitor: Monitor) -> object:
        return (tmp_path / "c").write_text(next(texts))

    plan = Plan(Layout(tmp_path / "data"))
    plan.add(Step("make", "c", tmp_path / "c", (), "", make, read, always=True))
    for made in (("make c",), (), ("make c",)):
        assert plan.make(QUIET) == (made, {})
