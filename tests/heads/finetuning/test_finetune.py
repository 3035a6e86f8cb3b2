"""Fine-tuning: from a frozen head to tables by tuned weights; killed, it ends in the same bytes."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.experiments.layout import Layout
from pipeline.experiments.run import run
from pipeline.heads import HeadError
from pipeline.heads.embed import embed
from pipeline.heads.finetuning import WEIGHTS_FILE
from pipeline.heads.finetuning.finetune import finetune, learnable_recipe
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.heads.trained_head import load_head
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.images.extract import extract
from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.query.query_models import QueryModels
from pipeline.store import devices
from pipeline.store.errors import PipelineError
from pipeline.store.hashing import sha256_of_file
from pipeline.store.jobs.options import Compute, Selection
from pipeline.store.shards.feature_set import read_features
from pipeline.studies.scenes.draw_scenes import draw_scenes
from tests.heads.finetuning.factories import (
    FIRST_LAYER,
    GRID,
    RECIPE,
    START,
    TUNED,
    add_tiny,
    killed,
    tuned,
)
from tests.project import contents


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which `pipeline run tuned` was done on 18 drawn scenes."""
    folder = tmp_path_factory.mktemp("project")
    dataset = folder / "data" / "scenes"
    draw_scenes(dataset, 18, seed=0).write(dataset)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    patch = pytest.MonkeyPatch()
    add_tiny(patch)
    assert made(folder) == [
        "extract tiny", "text token-ids", "train start", "embed start",
        "evaluate start", "train tuned", "extract tiny-tuned", "embed tuned",
        "evaluate tuned",
    ]  # fmt: skip
    yield folder
    patch.undo()
    torch.set_num_threads(before)


def made(
    folder: Path,
    seed: int = 0,
    dry_run: bool = False,
    precision: str | None = None,
    extracted: str = "float32",
) -> list[str]:
    """Run whatever is missing for the tuned row, and return what that was."""
    experiments = {"start": START, "tuned": TUNED}
    dataset, root = folder / "data" / "scenes", folder / "data"
    found = run(
        ["tuned"], dataset, experiments=experiments, root=root, dry_run=dry_run,
        training=TrainingOptions(seed=seed, precision=precision),
        extract={"weights": "random:0", "precision": extracted},
    )  # fmt: skip
    return list(found.made)


def test_killed_and_continued_it_ends_in_the_same_bytes(project: Path) -> None:
    """Killed within its last epoch, and continued with workers that read ahead."""
    assert killed(project, "killed") == signal.SIGKILL
    assert (project / ".work" / "train-killed" / "checkpoint.safetensors").is_file()
    assert not (project / "killed").exists()
    tuned(project, "killed", workers=1)
    assert not (project / ".work" / "train-killed").exists()
    assert contents(project / "killed") == contents(
        Layout.of("scenes", project / "data").head("tuned")
    )


def test_what_learns_and_what_does_not(project: Path) -> None:
    head = project / "data" / "heads" / "scenes" / "tuned"
    before = load_weights(resolve_recipe(RECIPE), "random:0").state
    after = load_file(head / WEIGHTS_FILE)
    assert after.keys() == before.keys()
    order = list(before)
    first = next(at for at, name in enumerate(order) if name.startswith(f"{FIRST_LAYER}."))
    for at, name in enumerate(order):
        learns = at >= first and not name.startswith("fc.") and name.endswith(("weight", "bias"))
        assert torch.equal(before[name], after[name]) != learns, name


def test_at_a_learning_rate_of_0_the_head_learns_alone(project: Path) -> None:
    assert TUNED.finetuning is not None
    frozen = replace(TUNED.finetuning, learning_rate=0.0)
    tuned(project, "frozen", experiment=replace(TUNED, name="frozen", finetuning=frozen))
    before = load_weights(resolve_recipe(RECIPE), "random:0").state
    after = load_file(project / "frozen" / WEIGHTS_FILE)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    start = load_head(Layout.of("scenes", project / "data").head("start")).head.tensors()
    learnt = load_head(project / "frozen").head.tensors()
    assert not all(torch.equal(start[name], learnt[name]) for name in start)


def test_the_tuned_weights_give_the_features_that_the_head_was_fitted_on(project: Path) -> None:
    """Validation in training is what extraction, embedding and evaluation find."""
    layout = Layout.of("scenes", project / "data")
    head, features = layout.head("tuned"), layout.features(TUNED.embedded_images)
    trained, said = load_head(head), json.loads((head / "head.json").read_text())
    sha256 = sha256_of_file(head / WEIGHTS_FILE)
    assert said["inputs"]["images"]["weights_sha256"] == sha256
    assert read_features(features).recipe_hash == trained.inputs.images.recipe_hash
    assert said["finetuning"]["start_sha256"] == load_head(layout.head("start")).tensors_sha256
    sides: dict[str, Any] = {"images": features, "captions": layout.text("token-ids")}
    embeddings = embed(
        layout.dataset, project / "val.h5", head=head, select=Selection("val"), **sides
    )
    table = evaluate(project / "val.h5", project / "val").table
    for figure, value in trained.chosen.items():
        if figure in table:
            assert table[figure] == pytest.approx(value), figure
    models = QueryModels(embeddings, project / "val.h5", head=head, encoder=None, weights=None)
    assert models.network  # of the tuned weights, or it would be refused
    frozen = {**sides, "images": layout.features(RECIPE)}
    with pytest.raises(HeadError, match=r"backbone\.safetensors.*use the features"):
        embed(layout.dataset, project / "no.h5", head=head, select=Selection("val"), **frozen)


def test_a_grid_head_is_tuned_with_its_network(project: Path) -> None:
    """Its loss reads nodes; its validation is the table of grids extracted with tuned weights."""
    settings = {
        "dim": 8, "attention_heads": 2, "caption_layers": 1, "word_dim": 4, "batch_size": 16,
        "epochs": 1, "loss": "pooling", "learning_rate": 0.01,
    }  # fmt: skip
    start = Experiment("grid-start", "relational", settings, GRID, START.captions)
    assert TUNED.finetuning is not None
    how = replace(TUNED.finetuning, start="grid-start")
    tuned = replace(start, name="grid-tuned", finetuning=how)
    table = run(
        "grid-tuned", project / "data" / "scenes", root=project / "data", test_split="val",
        experiments={e.name: e for e in (start, tuned)}, extract={"weights": "random:0"},
    ).tables["grid-tuned"]  # fmt: skip
    layout = Layout.of("scenes", project / "data")
    chosen = load_head(layout.head("grid-tuned")).chosen
    assert {n: table[n] for n in chosen if n in table} == pytest.approx(
        {n: value for n, value in chosen.items() if n in table}
    )
    assert "rsum" in table.keys() & chosen.keys()
    assert read_features(layout.features(tuned.embedded_images)).row_shape == (8, 8, 16)
    before = load_weights(resolve_recipe(GRID), "random:0").state
    after = load_file(layout.head("grid-tuned") / WEIGHTS_FILE)
    learnt = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert learnt == {"late.0.weight", "late.1.weight", "late.1.bias"}


def test_only_what_is_out_of_date_is_made_again(project: Path) -> None:
    assert made(project) == []
    again = made(project, seed=1, dry_run=True)
    assert [step for step in again if "start" not in step] == [
        "train tuned", "extract tiny-tuned", "embed tuned", "evaluate tuned",
    ]  # fmt: skip


def test_another_precision_is_another_head_and_other_features(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "fast_bf16", lambda device: True)
    low = tuned(project, "low", precision="auto")
    folder = Layout.of("scenes", project / "data").head("tuned")
    exact = load_head(folder)
    assert (low.precision, dict(low.finetuning or {})["precision"]) == ("bf16", "bf16")
    assert (exact.precision, dict(exact.finetuning or {})["precision"]) == ("float32", "float32")
    assert low.chosen["loss"] == pytest.approx(exact.chosen["loss"], rel=0.05)
    assert contents(project / "low")[WEIGHTS_FILE] != contents(folder)[WEIGHTS_FILE]
    assert made(project, dry_run=True, precision="float32") == []
    again = made(project, dry_run=True, precision="auto")
    assert [step for step in again if step.startswith(("extract", "train"))] == [
        "train start", "train tuned", "extract tiny-tuned",
    ]  # fmt: skip
    assert "extract tiny" in made(project, dry_run=True, extracted="auto")
    dataset, compute = project / "data" / "scenes", Compute("random:0", precision="auto")
    index = extract(dataset, project / "bf16", recipe=RECIPE, compute=compute)
    assert index.header.recipe["precision"] == "bf16"


def test_pictures_that_changed_are_named_and_counted(project: Path) -> None:
    pictures = sorted((project / "data" / "scenes" / "images").iterdir())
    kept = {path: path.read_bytes() for path in pictures[:2]}
    try:
        pictures[0].write_bytes(pictures[2].read_bytes())
        pictures[1].unlink()
        with pytest.raises(HeadError, match="of 15 images") as refused:
            tuned(project, "other")
    finally:
        for path, data in kept.items():
            path.write_bytes(data)
    assert pictures[0].name in str(refused.value)
    assert not (project / "other").exists()


def test_what_cannot_be_tuned_is_refused(project: Path) -> None:
    layout = Layout.of("scenes", project / "data")
    given: dict[str, Any] = {
        "experiment": TUNED, "start": layout.head("start"), "images": layout.features(RECIPE),
        "captions": layout.text("token-ids"),
    }  # fmt: skip
    how = TUNED.finetuning
    assert how is not None
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"weights": "random:1"}, "are not those of the image features"),
        ({"experiment": START}, "has no fine-tuning options"),
        ({"experiment": replace(TUNED, head="ridge", settings={})}, "a head of the same kind"),
        (
            {"experiment": replace(TUNED, settings={**TUNED.settings, "dim": 9})},
            "'start' is a head of other sizes than .*size mismatch",
        ),
        (
            {"experiment": replace(TUNED, finetuning=replace(how, first_layer="later"))},
            "no layer 'later'.*did you mean late",
        ),
        (
            {"experiment": replace(TUNED, finetuning=replace(how, first_layer="late.2"))},
            "has no weights",
        ),
    )
    for changes, message in refused:
        with pytest.raises(PipelineError, match=message):
            finetune(layout.dataset, project / "other", **{**given, **changes})


def spec(recipe: dict[str, Any]) -> FeatureSpec:
    return FeatureSpec((8,), json.loads(json.dumps(recipe)), "0" * 16, "none")


def test_recipes_of_several_crops_or_networks_are_refused() -> None:
    lite = resolve_recipe("efficientnet-lite0-pool").to_json()
    assert learnable_recipe(spec(lite)).name == "efficientnet-lite0-pool"
    crops = resolve_recipe("efficientnet-lite0-pool-10crop").to_json()
    for recipe, message in (
        (crops, "needs one crop; use efficientnet-lite0-pool, and extract"),
        ({"name": "a+b", "parts": [lite, lite]}, "concatenates several recipes"),
        ({"name": "mine"}, "not in `pipeline list recipes`"),
        ({**lite, "norm": "l2"}, "another version of their recipe"),
    ):
        with pytest.raises(HeadError, match=message):
            learnable_recipe(spec(recipe))
