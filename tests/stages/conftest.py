"""A project folder with a drawn dataset, and commands called as their users call them."""

import shutil
from pathlib import Path

import pytest
import yaml

from pipeline.scenes.draw_scenes import draw_scenes
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


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 60 drawn scenes, to be copied and not changed."""
    out = tmp_path_factory.mktemp("drawn") / "scenes"
    draw_scenes(out, 60, 0).write(out)
    return out


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenes: Path) -> Path:
    """An empty project folder with params.yaml and 60 drawn scenes."""
    monkeypatch.chdir(tmp_path)
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    params["max_epochs"] = None
    branch = params["experiments"]["wang2016-nonlinear-bidirectional-structure"]
    branch["captions"] = "mean-glove-6b-50d"
    branch["settings"] = {"hidden": 64, "dim": 32, "epochs": 3, "batch_size": 50}
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    shutil.copytree(scenes, "data/scenes")
    return tmp_path
