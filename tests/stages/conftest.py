"""A project folder with a drawn dataset, and commands called as their users call them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.studies.scenes.draw_scenes import draw_scenes
from tests.images.networks.narrow import NAME, NARROW
from tests.in_process import status_of
from tests.project import PROJECT, Call, Ended


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
            patch.setitem(BACKBONES, NAME, NARROW)
        yield


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 60 drawn scenes, to be copied and not changed."""
    out = tmp_path_factory.mktemp("drawn") / "scenes"
    draw_scenes(out, 60, 0).write(out)
    return out


@pytest.fixture(scope="session")
def params() -> str:
    """The text of the project's params.yaml, with a small two-branch network."""
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    params["max_epochs"] = None
    branch = params["experiments"]["wang2016-nonlinear-bidirectional-structure"]
    branch["captions"] = "mean-glove-6b-50d"
    branch["settings"] = {"hidden": 64, "dim": 32, "epochs": 3, "batch_size": 50}
    return yaml.safe_dump(params, sort_keys=False)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenes: Path, params: str) -> Path:
    """An empty project folder with params.yaml and 60 drawn scenes."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(params)
    shutil.copytree(scenes, "data/scenes")
    return tmp_path
