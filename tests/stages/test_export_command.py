"""`pipeline export`: the programs of an experiment of params.yaml."""

from pathlib import Path

from tests.project import Call
from tests.stages.conftest import RIDGE


def test_an_experiment_becomes_programs(copy: Path, pipeline: Call) -> None:
    ended = pipeline("export", RIDGE, "--to", "torch", "--out", "programs", "--without-photo")
    assert (ended.status, ended.stdout) == (0, "")
    assert {path.name for path in Path("programs").iterdir()} == {
        "image.pt2",
        "caption.pt2",
        "export.json",
    }
    assert "programs: image, caption, which differ from the embedding file by at most 0.0e+00" in (
        ended.stderr
    )
