"""`pipeline init`: what it writes fits the commands, and nothing is overwritten."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.experiments.layout import Layout
from stages.params import load_params
from stages.plan import experiment_of
from tests.project import Call

FILES = {"dvc.yaml", "params.yaml", ".gitignore", ".dvcignore"}
OWN = ("--root", "images", "--captions", "captions.csv")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with images and captions of a user."""
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    Path("captions.csv").write_text("path,caption\n")
    return tmp_path


def read(path: str) -> Any:
    return yaml.safe_load(Path(path).read_text())


def outs(stage: dict[str, Any]) -> list[str]:
    """Return the paths of a stage's outs and metrics."""
    listed = [*stage["outs"], *stage.get("metrics", [])]
    return [out if isinstance(out, str) else next(iter(out)) for out in listed]


@pytest.mark.parametrize(("options", "name"), [((), "scenes"), (OWN, "mine"), (OWN[:2], "mine")])
def test_stages_write_where_the_commands_do(
    folder: Path, pipeline: Call, options: tuple[str, ...], name: str
) -> None:
    ended = pipeline("init", *options)
    assert ended.stderr.endswith("next: `git init`, `dvc init`, `dvc repro`\n")
    assert {path.name for path in folder.iterdir()} == {"images", "captions.csv", *FILES}
    params, stages = load_params(), read("dvc.yaml")["stages"]
    assert (params.dataset, [*params.datasets]) == (name, [name])
    layout = Layout.of("${dataset}")
    assert outs(stages["prepare"]) == [str(layout.dataset)]
    assert outs(stages["extract"]["do"]) == [str(layout.features("${item}"))]
    text = [str(layout.text("${key}")), str(layout.encoder("${key}"))]
    assert outs(stages["text"]["do"]) == text
    run = stages["run"]["do"]
    assert outs(run)[:2] == [str(layout.head("${key}")), str(layout.embeddings("${key}"))]
    assert {str(Path(out).parent) for out in outs(run)[2:]} == {str(layout.evaluation("${key}"))}
    assert {*run["params"]} - {"experiments.${key}"} <= read("params.yaml").keys()
    for experiment, entry in params.experiments.items():
        plan, preset = experiment_of(params, experiment), experiment_of(type(params)(), experiment)
        assert entry.images in params.image_features
        assert entry.captions in params.caption_features
        assert (plan.images, plan.captions, plan.settings) == (
            preset.images, preset.captions, preset.settings,
        )  # fmt: skip
    assert stages["prepare"]["deps"] == [*options[1::2]]
    assert stages["extract"]["do"]["deps"] == ["data/${dataset}", *options[1:2]]


def test_paths_are_as_seen_from_the_folder(folder: Path, pipeline: Call) -> None:
    Path(".git").mkdir()
    ended = pipeline("init", "own/dvc", "--root", "images", "--captions", folder / "captions.csv")
    assert ended.stderr.endswith("next: `dvc init`, `dvc repro own/dvc/dvc.yaml`\n")
    expected = ["../../images", str(folder / "captions.csv")]
    assert read("own/dvc/dvc.yaml")["stages"]["prepare"]["deps"] == expected
    source = read("own/dvc/params.yaml")["datasets"]["mine"]
    assert [source["root"], source["captions"]] == expected


@pytest.mark.parametrize("name", ["dvc.yaml", "params.yaml"])
def test_an_existing_file_stays_and_the_stages_are_printed(
    folder: Path, pipeline: Call, name: str
) -> None:
    Path(name).write_text("a: 1\n")
    ended = pipeline("init", *OWN)
    assert (ended.status, f"{name} exists, and no file was written" in ended.stderr) == (1, True)
    assert Path(name).read_text() == "a: 1\n"
    assert not {path.name for path in folder.iterdir()} & (FILES - {name})
    pipeline("init", "own")
    own = "".join(
        f"# {file}\n{Path('own', file).read_text()}\n" for file in ("dvc.yaml", "params.yaml")
    )
    assert pipeline("init").stdout == own


@pytest.mark.parametrize("before", ["*.pyc", "*.pyc\n", ".work/\n*.pyc\n"])
def test_ignored_files_keep_their_lines(folder: Path, pipeline: Call, before: str) -> None:
    Path(".gitignore").write_text(before)
    pipeline("init")
    assert sorted(Path(".gitignore").read_text().splitlines()) == [
        "*.pyc", ".work/", "data/search/",
    ]  # fmt: skip
    assert Path(".dvcignore").read_text() == ".work/\n"
