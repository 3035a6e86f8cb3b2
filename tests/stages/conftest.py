"""A project folder with a drawn dataset, and commands called as their users call them."""

import sys
from pathlib import Path

import pytest
import yaml

from stages.cli import main
from tests.project import PROJECT, Call, Ended


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call `pipeline ARGUMENTS...` in this process."""

    def call(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["pipeline", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, out, err)

    return call


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call) -> Path:
    """An empty project folder with params.yaml and 60 drawn scenes."""
    monkeypatch.chdir(tmp_path)
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    params["max_epochs"] = None
    branch = params["experiments"]["wang2016-nonlinear-bidirectional-structure"]
    branch["captions"] = "mean-glove-6b-50d"
    branch["settings"] = {"hidden": 64, "dim": 32, "epochs": 3, "batch_size": 50}
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    assert pipeline("prepare", "scenes", "--images", 60, "--out", "data/scenes").status == 0
    return tmp_path
