"""`pipeline run`: what the single commands make, what is missing and nothing else."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.manifest import read_manifest
from pipeline.heads import HeadError
from pipeline.store.hashing import sha256_of_file
from stages.experiment import layout_of
from tests.project import Call
from tests.stages.conftest import LITE as RECIPE
from tests.stages.conftest import MEAN as CAPTIONS

NAME = "qian2018-baseline"


def made(stderr: str) -> list[str]:
    """Return the steps that a run says it made."""
    line = next(line for line in stderr.splitlines() if line.startswith(("made: ", "to be made: ")))
    steps = line.partition(": ")[2].rpartition("; ")[0]
    return [] if steps == "nothing" else [step.split()[0] for step in steps.split(", ")]


def files(*folders: str) -> dict[str, bytes]:
    """Return the bytes of all files below some folders."""
    paths = [path for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    # Records of finished sets have the inodes and times of files.
    return {str(path): path.read_bytes() for path in paths if path.suffix != ".finished"}


def test_run_makes_what_is_missing_and_nothing_else(
    project: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("data/features", "data/text", "data/heads", "data/embeddings", "data/evaluations")
    planned = pipeline("run", NAME, "--dry-run")
    steps = ["extract", "text", "train", "embed", "evaluate"]
    assert made(planned.stderr) == steps
    assert "60 rows of (1280,) float32" in planned.stderr
    assert files(*kinds) == {}

    ran = pipeline("run", NAME)
    assert ran.status == 0, ran.stderr
    assert made(ran.stderr) == steps
    assert NAME in ran.stdout
    by_run = files(*kinds)

    # The single commands find their own bytes: they make the same files anew.
    for kind in kinds[2:]:
        Path(kind).rename(f"{kind}-of-run")
    features, text = f"data/features/scenes/{RECIPE}", f"data/text/scenes/{CAPTIONS}"
    for call in (
        ("extract", "--recipe", RECIPE, "--dataset", "data/scenes", "--out", features),
        ("text", "--encoder", "mean", "--dataset", "data/scenes", "--out", text),
        ("train", "--experiment", NAME),
        ("embed", "--experiment", NAME),
        (
            "evaluate",
            f"data/embeddings/scenes/{NAME}.h5",
            "--out",
            f"data/evaluations/scenes/{NAME}",
        ),
    ):
        assert pipeline(*call).status == 0
    assert files(*kinds) == by_run

    assert made(pipeline("run", NAME).stderr) == []
    assert made(pipeline("run", NAME, "--dry-run").stderr) == []
    again = pipeline("run", NAME, "--seed", 1)
    assert "seed is 0, expected 1" in again.stderr
    assert made(again.stderr) == ["train"]  # ridge draws nothing, so that its tensors are the same
    twice = pipeline("run", NAME, "--seed", 1, "--seeds", 2)
    assert made(twice.stderr) == ["train", "embed", "evaluate"]
    assert f"{NAME}-seed2" in twice.stdout
    trained = json.loads(Path(f"data/heads/scenes/{NAME}-seed2/head.json").read_text())
    assert trained["seed"] == 2
    Path(f"data/evaluations/scenes/{NAME}/provenance.json").unlink()
    assert made(pipeline("run", NAME, "--seed", 1).stderr) == ["evaluate"]

    # Once nothing is left to do, no step is asked again; see test_snapshot.py.
    monkeypatch.setattr("pipeline.store.current.snapshot._SETTLED_NS", -(10**18))
    checked = pipeline("run", NAME, "--seed", 1)
    if not list(Path("data/.work").glob("run-scenes-*.finished")):
        return  # on a file system whose times of change are not the kernel's
    monkeypatch.delattr("pipeline.experiments.run.run")
    found = pipeline("run", NAME, "--seed", 1)
    assert (found.status, found.stdout) == (0, checked.stdout)
    assert made(found.stderr) == []
    as_json = json.loads(pipeline("run", NAME, "--seed", 1, "--json").stdout)
    assert (as_json["made"], [*as_json["tables"]]) == ([], [NAME])


def test_changed_captions_and_pictures_are_followed(project: Path, pipeline: Call) -> None:
    assert pipeline("run", NAME).status == 0
    before = read_manifest("data/scenes")
    first = before.entries[0]
    lines = Path("data/scenes/manifest.jsonl").read_text().splitlines()
    entry = json.loads(lines[0])
    entry["captions"][0] = "a blue whale in the sea"
    lines[0] = json.dumps(entry, separators=(",", ":"), sort_keys=True)
    Path("data/scenes/manifest.jsonl").write_text("\n".join(lines) + "\n")
    # As `prepare` leaves it: a manifest and what guards it.
    described = Path("data/scenes/dataset.json")
    found = json.loads(described.read_text())
    found["manifest_sha256"] = sha256_of_file(Path("data/scenes/manifest.jsonl"))
    described.write_text(json.dumps(found))
    ran = pipeline("run", NAME)
    assert ran.status == 0, ran.stderr
    assert "captions changed or new: 1" in ran.stderr
    assert made(ran.stderr) == ["text", "train", "embed", "evaluate"]

    picture = before.image_root / first.file
    picture.write_bytes((before.image_root / before.entries[1].file).read_bytes())
    ran = pipeline("run", NAME)
    assert "images changed or new: 1" in ran.stderr
    assert made(ran.stderr) == ["extract", "train", "embed", "evaluate"]

    picture.write_bytes(b"damaged")
    refused = pipeline("run", NAME)
    assert refused.status == 3
    assert f"| {NAME} | train {NAME} |" in refused.stderr
    assert "pass --leave-out-failed to `pipeline run`" in refused.stderr
    assert pipeline("run", NAME, "--leave-out-failed").status == 0


def test_words_of_ones_own_are_made_and_followed(project: Path, pipeline: Call) -> None:
    """Vectors of the dataset's own words are a step, and a head says from which it started."""
    Path("params.yaml").unlink()
    run = ("run", "kiros2014-lstm", "--dataset", "data/scenes", "--max-epochs", 1)
    ran = pipeline(*run)
    assert ran.status == 0, ran.stderr
    assert made(ran.stderr) == ["vectors", "extract", "text", "train", "embed", "evaluate"]
    vectors = Path("data/vectors/scenes/word2vec-100d.safetensors")
    head = json.loads(Path("data/heads/scenes/kiros2014-lstm/head.json").read_text())
    assert head["word_vectors"]["sha256"] == sha256_of_file(vectors)
    vectors.unlink()
    trained = ("vectors", "--train", "word2vec", "--dim", 100, "--epochs", 1)
    assert pipeline(*trained, "--dataset", "data/scenes", "--out", vectors).status == 0
    planned = pipeline(*run, "--dry-run")
    assert "training.epochs is 1, expected 20" in planned.stderr
    assert made(planned.stderr)[:2] == ["vectors", "train"]
    again = pipeline(*run)
    assert "was made with other options (training.epochs is 1, expected 20): moved" in again.stderr
    assert made(again.stderr) == ["vectors"], "the vectors that the head started from"
    assert len([*vectors.parent.glob("word2vec-100d.safetensors~*")]) == 1


def test_all_omits_what_needs_hours_or_clips(project: Path, pipeline: Call) -> None:
    """Published systems need no params.yaml; a dataset is named then."""
    Path("params.yaml").unlink()
    ended = pipeline("run", "all", "--dataset", "data/scenes", "--dry-run")
    assert ended.status == 0, ended.stderr
    steps = made(ended.stderr)
    assert steps.count("train") > 30
    assert steps.count("extract") == 2  # pooled and as a grid
    assert steps[-2:] == ["ensemble", "evaluate"]


def prepared_again(change: Callable[[list[Any]], list[Any]]) -> None:
    """Write the drawn dataset with other entries."""
    manifest = read_manifest("data/scenes")
    replace(manifest, entries=tuple(change(list(manifest.entries))), phrases=None).write(
        "data/scenes"
    )


def test_an_experiment_that_fails_does_not_stop_the_others(
    project: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.experiments.steps import head_steps

    fit = head_steps.fit

    def failing(*arguments: Any, experiment: Any, **options: Any) -> Any:
        if experiment.name == "kiros2014-linear":
            raise HeadError("a | b cannot be solved")
        return fit(*arguments, experiment=experiment, **options)

    monkeypatch.setattr(head_steps, "fit", failing)
    ended = pipeline("run", "kiros2014-linear", NAME, "--dataset", "data/scenes", "--size", "tiny")
    assert ended.status == 1
    assert "not made: 1 experiment\n" in ended.stderr
    assert (
        "| kiros2014-linear | train kiros2014-linear | a \\| b cannot be solved |" in ended.stderr
    )
    assert "embed kiros2014-linear: skipped, since train kiros2014-linear failed" in ended.stderr
    assert NAME in ended.stdout
    assert "kiros2014-linear" not in ended.stdout


def test_outputs_are_found_by_the_dataset_from_any_folder(
    project: Path, pipeline: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert layout_of(Path("../a/data/mine"), "").head("x") == Path("../a/data/heads/mine/x")
    assert layout_of(Path("mine"), "").head("x") == Path("data/heads/mine/x")
    for dataset in ((), ("--dataset", "elsewhere/scenes")):
        shutil.copytree("data", "elsewhere", dirs_exist_ok=True)
        planned = pipeline("run", NAME, "--data", "elsewhere", *dataset, "--dry-run")
        assert f"-> elsewhere/evaluations/scenes/{NAME}" in planned.stderr
    refused = pipeline("embed", "--experiment", NAME, "--data", "other", "--dataset", "data/scenes")
    assert f"other/heads/scenes/{NAME} not found" in refused.stderr
    assert f"`pipeline run {NAME} --dataset data/scenes --data other`" in refused.stderr
    monkeypatch.chdir("data")
    assert layout_of(Path("mine"), "").head("x") == Path("heads/mine/x")


def test_splits_are_options(project: Path, pipeline: Call) -> None:
    prepared_again(lambda entries: [replace(e, split=f"{e.split}2017") for e in entries])
    refused = pipeline("run", NAME)
    assert refused.status == 1
    assert "--train-split, --validation-split and --test-split" in refused.stderr
    splits = {"train": "train2017", "validation": "val2017", "test": "test2017"}
    options = [text for role, name in splits.items() for text in (f"--{role}-split", name)]
    ran = pipeline("run", NAME, *options)
    assert ran.status == 0, ran.stderr
    assert read_manifest("data/scenes").counts.keys() == {*splits.values()}
