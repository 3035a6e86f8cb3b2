"""`pipeline run` on what has changed, on what fails, and on splits of other names."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.datasets.manifest import read_manifest
from pipeline.heads import HeadError
from tests.project import Call
from tests.stages.test_run_command import NAME, RECIPE, files, made


def prepared_again(change: Callable[[list[Any]], list[Any]]) -> None:
    """Write the drawn dataset with other entries."""
    manifest = read_manifest("data/scenes")
    replace(manifest, entries=tuple(change(list(manifest.entries))), phrases=None).write(
        "data/scenes"
    )


def test_a_removed_image_needs_one_command_and_no_row(project: Path, pipeline: Call) -> None:
    assert pipeline("run", NAME).status == 0
    prepared_again(lambda entries: entries[1:])
    out = f"data/features/scenes/{RECIPE}"
    single = ("extract", "--recipe", RECIPE, "--dataset", "data/scenes", "--out", out)
    refused = pipeline(*single)
    assert refused.status == 1
    assert "--update keeps the rows that are up to date" in refused.stderr
    ran = pipeline("run", NAME)
    assert ran.status == 0, ran.stderr
    assert "59 rows: 59 kept, 0 new, 0 changed, 1 removed" in ran.stderr
    assert "\n0 computed in" in ran.stderr
    assert made(ran.stderr) == ["extract", "text", "train", "embed", "evaluate"]
    Path("data/features").rename("features-of-run")
    assert pipeline(*single, "--update").status == 0
    assert [*files("data/features").values()] == [*files("features-of-run").values()]


def test_other_options_in_params_are_followed_and_taken_back(project: Path, pipeline: Call) -> None:
    assert pipeline("run", NAME).status == 0
    kinds = ("data/text", f"data/features/scenes/{RECIPE}", "data/evaluations")
    before = files(*kinds)
    params = yaml.safe_load(Path("params.yaml").read_text())
    given = params["extract"]["storage"]
    params["extract"]["storage"] = "float16"
    Path("params.yaml").write_text(yaml.safe_dump(params))
    planned = pipeline("run", NAME, "--dry-run")
    assert "recipe.storage is float32, expected float16" in planned.stderr
    ran = pipeline("run", NAME)
    assert ran.status == 0, ran.stderr
    assert "moved aside to" in ran.stderr
    assert made(ran.stderr) == ["extract", "train", "embed", "evaluate"]
    params["extract"]["storage"] = given
    Path("params.yaml").write_text(yaml.safe_dump(params))
    ran = pipeline("run", NAME)
    assert "holds the requested features: moved back to" in ran.stderr
    assert "60 rows are done" in ran.stderr
    assert files(*kinds) == before


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
