"""`pipeline train` and `pipeline embed`: what they announce, and how a training goes on."""

import json
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from pipeline.datasets.manifest import read_manifest
from pipeline.heads.inputs.pairs import join_pairs
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.heads.training.checkpoints import Checkpoints, TrainingState
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.store.shards.feature_set import FeatureSet
from stages.cli import main
from tests.forks import exit_of
from tests.heads.factories import write_features
from tests.project import Call

NAME = "made"
SETTINGS = {"hidden": 16, "dim": 8, "epochs": 4, "batch_size": 50}


@pytest.fixture
def experiment(project: Path) -> Path:
    """The project with an experiment on made features."""
    make_features("features")
    make_features("text")
    configure()
    return project


def make_features(side: str, **changes: Any) -> None:
    """Write 12 numbers an image ("features"), or 8 a caption ("text"), in place of others."""
    folder = Path("data", side, "scenes", NAME)
    shutil.rmtree(folder, ignore_errors=True)
    entries = read_manifest(Path("data/scenes")).entries
    if side == "features":
        ids, dim = [entry.id for entry in entries], 12
    else:
        ids, dim = [caption_id for entry in entries for caption_id in entry.caption_ids], 8
    features = np.random.default_rng(dim).standard_normal((len(ids), dim), np.float32)
    write_features(folder, ids, features, **changes)


def ids_of(split: str) -> list[str]:
    return [entry.id for entry in read_manifest(Path("data/scenes")).select(split)]


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
    assert ended.status == 130
    assert f"kept in {work}; the same command resumes from there" in ended.stderr
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
    ended = pipeline("train", "--experiment", NAME)
    assert (ended.status, "average_captions=True" in ended.stderr) == (0, True)
    assert pipeline("embed", "--experiment", NAME).status == 0
    made = read_embeddings(Path(f"data/embeddings/scenes/{NAME}.h5"))
    assert made.caption_image_ids == made.image_ids
    trained = load_head(f"data/heads/scenes/{NAME}")
    assert trained.average_captions
    assert made.provenance["average_captions"]


def test_what_cannot_be_trained_is_refused(experiment: Path, pipeline: Call) -> None:
    ended = pipeline("train", "--experiment", NAME, "--device", "abacus")
    assert (ended.status, "no device is called 'abacus'" in ended.stderr) == (2, True)
    ended = pipeline("train", "--experiment", NAME, "--weights", "random:0")
    assert (ended.status, "trains on stored features" in ended.stderr) == (2, True)
    for changes, message in (
        ({"head": "recurrent"}, "no head is called 'recurrent'"),
        ({"settings": {"decay": 0.5}}, "has no setting 'decay'"),
        ({"head": None}, "no preset is called 'made'"),
        ({"preset": "vsepp"}, "remove one"),
        ({"head": None, "preset": "vsep"}, "did you mean vsepp"),
    ):
        configure(**changes)
        ended = pipeline("train", "--experiment", NAME)
        assert (ended.status, message in ended.stderr) == (1, True), ended.stderr
    configure(word_vectors="glove-6b-50d")
    ended = pipeline("train", "--experiment", NAME)
    assert (ended.status, Path("data/heads").exists()) == (1, False)
    assert "has no token ids" in ended.stderr


def test_features_that_a_head_cannot_take_are_refused(experiment: Path, pipeline: Call) -> None:
    for head, encoder, message in (
        ("word2visualvec", "mean", "predicts values of at least 0"),
        ("vse", "mean", "reads captions word by word, but 'made' is 'mean'"),
        ("ridge", "sequence", "token ids are not a vector"),
        ("scan", "sequence", "needs a grid or a list of regions"),
    ):
        make_features("text", recipe={"name": NAME, "encoder": encoder, "num_ids": 9})
        configure(head=head, settings={})
        ended = pipeline("train", "--experiment", NAME)
        assert (ended.status, message in ended.stderr) == (1, True), ended.stderr
        assert not list(Path("data").rglob("*.safetensors")), "neither a head nor a checkpoint"


def test_features_of_another_recipe_are_not_embedded(experiment: Path, pipeline: Call) -> None:
    configure(head="ridge", settings={})
    assert pipeline("train", "--experiment", NAME).status == 0
    make_features("text", recipe={"name": "other"})
    ended = pipeline("embed", "--experiment", NAME)
    assert ended.status == 1
    assert "caption features 'other' (8,)" in ended.stderr
    assert "fitted on 'made' (8,)" in ended.stderr
    assert not Path("data/embeddings").exists()


def test_failed_images_are_refused_or_left_out_and_counted(
    experiment: Path, pipeline: Call
) -> None:
    train = ids_of("train")

    def ended(failed: list[str], *options: object) -> tuple[int, str]:
        make_features("features", failed=failed)
        found = pipeline("train", "--experiment", NAME, *options)
        return found.status, found.stderr

    status, stderr = ended([train[0], ids_of("val")[0]])
    assert (status, f"1 of {len(train)} requested rows have no features" in stderr) == (1, True), (
        stderr
    )
    status, stderr = ended([train[0], ids_of("val")[0]], "--leave-out-failed")
    assert (status, "2 images without features are left out" in stderr) == (0, True), stderr
    assert f"train: {len(train) - 1} images" in stderr
    status, stderr = ended(train[1:], "--leave-out-failed")
    assert (status, "1 training image found; at least 2" in stderr) == (1, True), stderr
    status, stderr = ended(train, "--leave-out-failed")
    assert (status, f"none of the {len(train)} images has features" in stderr) == (1, True), stderr


def test_rows_said_to_be_sound_are_refused_when_they_are_not(
    experiment: Path, pipeline: Call
) -> None:
    # Our writer refuses such rows; somebody else's may not.
    with h5py.File(next(Path("data/text/scenes", NAME).glob("shard-00000-*")), "r+") as file:
        file["features"][0, 3] = np.nan
        file["crc32"][0] = zlib.crc32(file["features"][0])
        caption_id = file["ids"].asstr()[0]
    ended = pipeline("train", "--experiment", NAME, "--leave-out-failed")
    assert ended.status == 1
    assert f"1 row has NaN or infinite values, first ['{caption_id}']" in ended.stderr


def test_another_process_embeds_as_the_one_that_trained(
    experiment: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[TrainedHead] = []
    save = TrainedHead.save

    def saved(self: TrainedHead, folder: Path) -> TrainedHead:
        trained.append(save(self, folder))
        return trained[-1]

    monkeypatch.setattr(TrainedHead, "save", saved)
    assert pipeline("train", "--experiment", NAME).status == 0
    monkeypatch.setattr(sys, "argv", ["pipeline", "embed", "--experiment", NAME])
    assert exit_of(main) == 0
    found = read_embeddings(Path(f"data/embeddings/scenes/{NAME}.h5"))
    entries = read_manifest(Path("data/scenes")).select("test")
    images, captions = (FeatureSet(Path("data", s, "scenes", NAME)) for s in ("features", "text"))
    test = join_pairs(entries, images, captions)
    assert (found.image_ids, found.caption_ids) == (test.image_ids, test.caption_ids)
    head = trained[0].head
    np.testing.assert_array_equal(found.image_embeddings, head.embed_images(test.images))
    np.testing.assert_array_equal(found.caption_embeddings, head.embed_captions(test.captions))


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


def test_an_ensemble_of_two_experiments(experiment: Path, pipeline: Call) -> None:
    names = {NAME: SETTINGS, "smaller": SETTINGS | {"dim": 4}}
    path = Path("params.yaml")
    params = yaml.safe_load(path.read_text())
    plan = {"images": NAME, "captions": NAME, "head": "two-branch"}
    params["experiments"] = {n: plan | {"settings": settings} for n, settings in names.items()}
    params["ensembles"] = {"both": dict.fromkeys(names, 1.0)}
    path.write_text(yaml.safe_dump(params))
    ended = pipeline("ensemble", "--name", "both")
    assert (ended.status, "`pipeline embed` writes one" in ended.stderr) == (1, True)
    for name in names:
        assert pipeline("train", "--experiment", name).status == 0
    assert pipeline("embed").status == 0
    one = Path(f"data/embeddings/scenes/{NAME}.h5").read_bytes()
    assert pipeline("embed", "--experiment", NAME).status == 0
    assert Path(f"data/embeddings/scenes/{NAME}.h5").read_bytes() == one
    # Another split has another file; that of the tables may be named.
    for split, file in (("train", f"search/scenes/{NAME}.train.h5"), ("test", "")):
        assert pipeline("embed", "--experiment", NAME, "--split", split).status == 0
        assert not file or Path("data", file).is_file()
        assert Path(f"data/embeddings/scenes/{NAME}.h5").read_bytes() == one
    ended = pipeline("ensemble")
    assert (ended.status, "the mean of 2 cosines" in ended.stderr) == (0, True), ended.stderr
    ended = pipeline("evaluate")
    assert (ended.status, "| smaller " in ended.stdout) == (0, True), ended.stderr
    tables = {path.parent.name for path in Path("data/evaluations/scenes").glob("*/recall.json")}
    assert tables == {*names, "both"}
    for command in (
        ("embed", "--out", "x.h5"),
        ("ensemble", "--out", "x.h5"),
        ("evaluate", "x.h5"),
    ):
        assert pipeline(*command).status == 2
    made = Path("data/ensembles/scenes/both.h5")
    found = read_embeddings(made)
    assert (found.similarity, found.provenance["experiment"]) == ("dot", "both")
    folder = Path("data/embeddings").rename("elsewhere") / "scenes"
    options = ("--name", "both", "--dataset", "data/scenes", "--embeddings", folder)
    assert pipeline("ensemble", *options, "--out", "other.h5").status == 0
    assert Path("other.h5").read_bytes() == made.read_bytes()
    ended = pipeline("ensemble", "--name", "none")
    assert (ended.status, "has no ensemble 'none'" in ended.stderr) == (2, True)
