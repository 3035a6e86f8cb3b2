"""`pipeline train` and `pipeline embed`: what they announce, and how a training goes on."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from pipeline.datasets.manifest import read_manifest
from pipeline.heads.checkpoints import Checkpoints, TrainingState
from pipeline.retrieval.embeddings import read_embeddings
from tests.heads.made import write_features
from tests.stages.project import Call

NAME = "made"
SETTINGS = {"hidden": 16, "dim": 8, "epochs": 4, "batch_size": 50}


@pytest.fixture
def experiment(project: Path) -> Path:
    """The project with an experiment on made features."""
    manifest = read_manifest(Path("data/scenes"))
    rng = np.random.default_rng(0)
    ids = [entry.id for entry in manifest.entries]
    captions = [one for entry in manifest.entries for one in entry.caption_ids]
    for folder, rows, dim in (("features", ids, 12), ("text", captions, 8)):
        features = rng.standard_normal((len(rows), dim), np.float32)
        write_features(Path("data", folder, "scenes", NAME), rows, features)
    configure()
    return project


def configure(**changes: object) -> None:
    path = Path("params.yaml")
    params = yaml.safe_load(path.read_text())
    plan = {"images": NAME, "captions": NAME, "head": "two-branch", "settings": SETTINGS}
    params["experiments"] = {NAME: plan | changes}
    path.write_text(yaml.safe_dump(params))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_interrupted_training_goes_on(
    experiment: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = pipeline("train", "--experiment", NAME, "--out", "whole")
    assert ended.status == 0
    assert "(12,)" in ended.stderr
    assert "in memory" in ended.stderr
    save = Checkpoints.save

    def interrupted(self: Checkpoints, state: TrainingState) -> None:
        save(self, state)
        if len(state.history) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", interrupted)
        ended = pipeline("train", "--experiment", NAME, "--out", "halves")
    work = experiment / ".work" / "train-halves"
    assert ended.status == 1
    assert f"kept in {work}; the same command goes on from there" in ended.stderr
    assert not Path("halves").exists()
    ended = pipeline("train", "--experiment", NAME, "--out", "halves", "--workers", 1)
    assert ended.status == 0
    assert "after epoch 2 of 4" in ended.stderr
    assert files(Path("halves")) == files(Path("whole"))
    assert not work.exists()


def test_captions_are_averaged_where_the_experiment_says_so(
    experiment: Path, pipeline: Call
) -> None:
    configure(head="ridge", settings={}, average_captions=True)
    assert pipeline("train", "--experiment", NAME).status == 0
    ended = pipeline("embed", "--experiment", NAME)
    assert ended.status == 0
    assert "average_captions=True" in ended.stderr
    made = read_embeddings(Path("data/embeddings") / f"{NAME}.h5")
    rows = made.caption_embeddings.reshape(len(made.image_ids), -1, 12)
    assert rows.shape[1] == 5
    assert (rows == rows[:, :1]).all()


def test_what_cannot_be_trained_is_refused(experiment: Path, pipeline: Call) -> None:
    ended = pipeline("train", "--experiment", NAME, "--device", "abacus")
    assert (ended.status, "try device 'cpu'" in ended.stderr) == (1, True)
    configure(word_vectors="glove-6b-50d")
    ended = pipeline("train", "--experiment", NAME)
    assert (ended.status, Path("data/heads").exists()) == (1, False)
    assert "has no word numbers" in ended.stderr


def test_no_training_is_longer_than_asked(experiment: Path, pipeline: Call) -> None:
    def epochs(out: str, *options: object) -> int:
        assert pipeline("train", "--experiment", NAME, "--out", out, *options).status == 0
        return len(json.loads(Path(out, "history.json").read_text()))

    assert epochs("whole") == 4
    assert epochs("short", "--max-epochs", 2) == 2
    path = Path("params.yaml")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "max_epochs": 3}))
    assert epochs("as-params-say") == 3
    assert epochs("longer", "--max-epochs", 9) == 4
    assert json.loads(Path("short/head.json").read_text())["settings"]["epochs"] == 2
