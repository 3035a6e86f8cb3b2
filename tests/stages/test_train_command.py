"""`train`, `embed`, `ensemble` and `evaluate` on the experiments of params.yaml."""

import json
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml

from pipeline.datasets.manifest import read_manifest
from pipeline.heads.training.checkpoints import Checkpoints, TrainingState
from pipeline.retrieval.embedding_file import read_embeddings
from tests.project import Call, contents
from tests.stages.conftest import LITE, MEAN, NAME

TRAIN = ("train", "--experiment", NAME, "--out")


def test_an_interrupted_training_resumes(
    copy: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = pipeline(*TRAIN, "whole")
    assert (ended.status, "in memory" in ended.stderr) == (0, True)
    assert contents(Path("whole")) == contents(Path(f"data/heads/scenes/{NAME}"))
    save = Checkpoints.save

    def interrupted(self: Checkpoints, state: TrainingState) -> None:
        save(self, state)
        if len(state.history) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", interrupted)
        ended = pipeline(*TRAIN, "halves")
    work = copy / ".work" / "train-halves"
    assert (ended.status, Path("halves").exists()) == (130, False)
    assert f"kept in {work}; the same command resumes from there" in ended.stderr
    ended = pipeline(*TRAIN, "halves", "--workers", 1)
    assert (ended.status, "after epoch 2 of 3" in ended.stderr) == (0, True), ended.stderr
    assert contents(Path("halves")) == contents(Path("whole"))
    assert not work.exists()


def test_no_training_is_longer_than_requested(copy: Path, pipeline: Call) -> None:
    def epochs(out: str, *options: object) -> int:
        assert pipeline(*TRAIN, out, *options).status == 0
        assert pipeline(*TRAIN, out, *options, "--seed", 1).status == 0
        assert json.loads(Path(out, "head.json").read_text())["seed"] == 1
        return len(json.loads(Path(out, "history.json").read_text()))

    assert epochs("whole") == 3
    assert epochs("short", "--max-epochs", 1) == 1
    assert json.loads(Path("short/head.json").read_text())["settings"]["epochs"] == 1
    path = Path("params.yaml")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "max_epochs": 2}))
    assert epochs("as-params-say") == 2
    assert epochs("longer", "--max-epochs", 9) == 3


def test_images_without_features_are_refused_or_left_out(copy: Path, pipeline: Call) -> None:
    train, val = (read_manifest("data/scenes").select(split) for split in ("train", "val"))
    extract = ("extract", "--recipe", LITE, "--dataset", "data/scenes", "--out", "damaged")
    train_on = (*TRAIN, "head", "--image-features", "damaged")

    def damage(*entries: object) -> None:
        for entry in entries:
            Path(f"data/scenes/images/{entry.file}").write_bytes(b"damaged")  # type: ignore[attr-defined]
        assert pipeline(*extract).status == 3

    damage(train[0], val[0])
    ended = pipeline(*train_on)
    assert (ended.status, "1 of 26 requested rows have no features" in ended.stderr) == (1, True)
    ended = pipeline(*train_on, "--leave-out-failed")
    assert ended.status == 0, ended.stderr
    assert "2 images without features are left out" in ended.stderr
    assert "train: 25 images" in ended.stderr
    damage(*train[1:25])
    ended = pipeline(*train_on, "--leave-out-failed")
    assert (ended.status, "1 training image found; at least 2" in ended.stderr) == (1, True)
    damage(train[25])
    ended = pipeline(*train_on, "--leave-out-failed")
    assert (ended.status, "none of the 26 images has features" in ended.stderr) == (1, True)


def test_rows_that_only_their_status_calls_sound_are_refused(copy: Path, pipeline: Call) -> None:
    # Our writer refuses such rows; another program's may not.
    with h5py.File(next(Path("data/text/scenes", MEAN).glob("shard-*")), "r+") as file:
        file["features"][0, 3] = np.nan
        file["crc32"][0] = zlib.crc32(file["features"][0])
        caption_id = file["ids"].asstr()[0]
    ended = pipeline(*TRAIN, "head", "--leave-out-failed")
    assert ended.status == 1
    assert f"1 row has NaN or infinite values, first ['{caption_id}']" in ended.stderr


def test_without_a_name_all_of_params_yaml_is_embedded_joined_and_ranked(
    copy: Path, pipeline: Call
) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    del params["experiments"]["untrained"], params["ensembles"]["unmade"]
    Path("params.yaml").write_text(yaml.safe_dump(params))
    file, joint = Path(f"data/embeddings/scenes/{NAME}.h5"), Path("data/ensembles/scenes/both.h5")
    before = file.read_bytes(), joint.read_bytes()
    for command in ("embed", "ensemble"):
        ended = pipeline(command)
        assert ended.status == 0, ended.stderr
    assert "the mean of 2 cosines" in ended.stderr
    # Another split has another file; that of the tables may be named.
    for split in ("train", "test"):
        assert pipeline("embed", "--experiment", NAME, "--split", split).status == 0
    assert Path(f"data/search/scenes/{NAME}.train.h5").is_file()
    assert (file.read_bytes(), joint.read_bytes()) == before
    found = read_embeddings(joint)
    assert (found.similarity, found.provenance["experiment"]) == ("dot", "both")
    ended = pipeline("evaluate")
    assert (ended.status, "| other " in ended.stdout) == (0, True), ended.stderr
    tables = {path.parent.name for path in Path("data/evaluations/scenes").glob("*/recall.json")}
    assert tables == {*params["experiments"], "both"}
    ended = pipeline("report")
    assert ended.stdout == Path("data/report/scenes/recall.md").read_text()
    named = ("--name", "both", "--dataset", "data/scenes", "--embeddings")
    folder = Path("data/embeddings").rename("elsewhere") / "scenes"
    assert pipeline("ensemble", *named, folder, "--out", "other.h5").status == 0
    assert Path("other.h5").read_bytes() == before[1]
