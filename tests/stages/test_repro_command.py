"""`pipeline repro`: what it says while DVC runs, and how it ends."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from stages import repro
from tests.project import Call

DVC_YAML = """\
stages:
  prepare: {cmd: p}
  text: {foreach: "${caption_features}", do: {cmd: t}}
  report: {cmd: r}
"""
PARAMS = """\
dataset: scenes
datasets: {scenes: {kind: scenes}, mine: {kind: folder}}
caption_features: {bow: {encoder: bow}, mean: {encoder: mean}}
"""
OUTPUT = """\
Running stage 'prepare':
> p
600 images
Updating lock file 'dvc.lock'

Stage 'text@bow' didn't change, skipping
Running stage 'text@mean':
> t
"""
ROW = {
    "experiment": "x", "num_images": 3, "rsum": 400.04,
    **{f"{d}_r{k}": 66.66 for d in ("image_to_text", "text_to_image") for k in (1, 5, 10)},
}  # fmt: skip


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What DVC says, a text a run, in a folder with these stages."""
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text(DVC_YAML)
    Path("params.yaml").write_text(PARAMS)
    outputs: list[str] = []

    @contextmanager
    def dvc(targets: tuple[str, ...]) -> Iterator[Iterator[str]]:
        yield iter(outputs.pop(0).splitlines(keepends=True))

    monkeypatch.setattr(repro, "_dvc", dvc)
    return outputs


def test_a_line_a_stage_then_the_table_and_what_comes_next(said: list[str], pipeline: Call) -> None:
    said.append(f"{OUTPUT}Running stage 'report':\n> r\n")
    Path("data/report/scenes").mkdir(parents=True)
    Path("data/report/scenes/recall.json").write_text(json.dumps([ROW]))
    ended = pipeline("repro")
    assert ended.status == 0
    lines = ended.stderr.splitlines()
    assert [line.rpartition("] ")[2] for line in lines[:3]] == ["prepare", "text mean", "report"]
    assert [line[:5] for line in lines[:3]] == ["[ 1/4", "[ 3/4", "[ 4/4"]
    assert lines[3].startswith("3 of 4 stages made, 1 were up to date, 0:00 (prepare 0 s, text 0 s")
    assert ended.stdout.splitlines()[1].split() == ["x", *["66.7"] * 6, "400.0"]
    assert "data/report/scenes/html/index.html" in ended.stderr
    assert ended.stderr.count("pipeline s") == 2
    assert Path("data/repro.log").read_text().startswith(OUTPUT)


def test_what_comes_next_works_on_any_dataset(said: list[str], pipeline: Call) -> None:
    """An ensemble has no head to ask, and only drawn scenes surely hold red circles."""
    said.append(OUTPUT)
    Path("params.yaml").write_text(PARAMS.replace("dataset: scenes", "dataset: mine"))
    told = ImageEntry("a", "a.jpg", "test", ("It's a dog.",))
    silent = ImageEntry("b", "b.jpg", "test", ())
    Manifest("mine", Path.cwd(), (told, silent), "", "", {}).write("data/mine")
    Path("data/report/mine").mkdir(parents=True)
    Path("data/heads/mine/x").mkdir(parents=True)
    rows = [ROW, ROW | {"experiment": "ours", "rsum": 500.0}]
    Path("data/report/mine/recall.json").write_text(json.dumps(rows))
    ended = pipeline("repro")
    (search,) = (line for line in ended.stderr.splitlines() if " search " in line)
    assert shlex.split(search)[1:] == ["search", "It's a dog.", "--experiment", "x"]


def test_a_stage_that_fails_is_named_with_its_last_lines(said: list[str], pipeline: Call) -> None:
    said.append(
        f"{OUTPUT}pipeline: error: no room\nERROR: failed to reproduce 'text@mean': exited with 1\n"
    )
    ended = pipeline("repro")
    assert ended.status == 1
    assert "  pipeline: error: no room\n" in ended.stderr
    assert "stage text@mean failed (failed to reproduce 'text@mean': exited with 1)" in ended.stderr


def test_the_time_left_follows_from_stages_of_the_same_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(repro, "monotonic", lambda: now[0])
    watch = repro.Watch({"text": 3, "train": 2, "report": 1})
    for name, seconds in (("text@a", 1), ("text@b", 3), ("text@c", 2), ("train@a", 10)):
        watch.see(f"Running stage '{name}':")
        now[0] += seconds
    watch.see("Running stage 'train@b':")
    now[0] += 4
    # 10 s as the other training took, less 4; 4 s as the average of all four for the report.
    assert watch.seconds_left(now[0]) == pytest.approx(6 + 4)


def test_a_folder_without_stages_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = pipeline("repro")
    assert (ended.status, "dvc.yaml not found" in ended.stderr) == (2, True)
