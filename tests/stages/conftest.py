"""A project folder with a drawn dataset, and commands called as their users call them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.studies.scenes.draw_scenes import draw_scenes
from tests.images.networks import narrow
from tests.in_process import status_of
from tests.project import PROJECT, Call, Ended
from tests.store.shards.factories import build

LITE, MEAN = "efficientnet-lite0-pool", "mean-glove-6b-50d"
NAME, RIDGE = "two-branch-tiny", "ridge-tiny"
SETTINGS = {"hidden": 64, "dim": 32, "epochs": 3, "batch_size": 50}


@pytest.fixture
def pipeline(capsys: pytest.CaptureFixture[str]) -> Call:
    """Call `pipeline ARGUMENTS...` in this process."""

    def call(*arguments: object) -> Ended:
        capsys.readouterr()
        status = status_of(*arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ended(status, out, err)

    return call


@pytest.fixture
def in_full() -> None:
    """Has EfficientNet-Lite0 run as it is; other tests of commands have a narrow network."""


@pytest.fixture(autouse=True)
def _narrow(request: pytest.FixtureRequest) -> Iterator[None]:
    # Not the fixture `monkeypatch`, which tests have undone before their other fixtures end.
    with pytest.MonkeyPatch.context() as patch:
        if "in_full" not in request.fixturenames:
            patch.setitem(BACKBONES, narrow.NAME, narrow.NARROW)
        yield


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 60 drawn scenes, to be copied and not changed."""
    out = tmp_path_factory.mktemp("drawn") / "scenes"
    draw_scenes(out, 60, 0).write(out)
    return out


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenes: Path) -> Path:
    """A project folder with params.yaml and 60 drawn scenes, and nothing made of them."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROJECT / "params.yaml", "params.yaml")
    shutil.copytree(scenes, "data/scenes")
    return tmp_path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with 40 scenes, features, three heads, and embeddings of the test split
    and, of two, of all splits.

    `set` is a feature set of 23 rows (2, 3), of which 3 and 17 failed.
    """
    folder = tmp_path_factory.mktemp("made")
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    features = {"images": LITE, "captions": MEAN}
    params["ensembles"] = {"both": {NAME: 1.0, "other": 1.0}, "unmade": {NAME: 1.0, "other": 1.0}}
    params["experiments"] = {
        NAME: {**features, "head": "two-branch", "settings": SETTINGS},
        RIDGE: {**features, "head": "ridge"},
        "other": {**features, "head": "two-branch", "settings": {**SETTINGS, "dim": 16}},
        "untrained": {**features, "head": "ridge"},
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    dataset = ("--dataset", "data/scenes")
    commands = [
        ("prepare", "scenes", "--num-images", "40", "--out", "data/scenes"),
        ("extract", "--recipe", LITE, *dataset, "--out", f"data/features/scenes/{LITE}"),
        *(
            ("text", "--encoder", encoder, *dataset, "--out", f"data/text/scenes/{name}")
            for encoder, name in (("mean", MEAN), ("tfidf", "tfidf"))
        ),
        *(
            (step, "--experiment", name)
            for name in (NAME, RIDGE, "other")
            for step in ("train", "embed")
        ),
        *(("embed", "--experiment", name, "--split", "all") for name in (NAME, RIDGE)),
        ("ensemble", "--name", "both"),
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setitem(BACKBONES, narrow.NAME, narrow.NARROW)
        for command in commands:
            assert status_of(*command) == 0
        build(Path("set"), 23)
    return folder


@pytest.fixture
def within(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project `made` as the current folder; nothing in it may be changed."""
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def copy(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project `made` as the current folder."""
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"
