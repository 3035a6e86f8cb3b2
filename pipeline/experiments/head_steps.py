"""The steps that train heads, with an image network or without, and extract with what it learnt."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.experiments.checks import MISSING, index_fault, json_fault, weights_of
from pipeline.experiments.input_steps import recipe_for, rows_of
from pipeline.experiments.steps import Plan, Step
from pipeline.finetuning import WEIGHTS_FILE
from pipeline.finetuning.finetune import finetune
from pipeline.hashing import sha256_of_file
from pipeline.heads.fit import fit
from pipeline.heads.head_types import Experiment, with_epochs_at_most
from pipeline.heads.inputs.pairs import made_from
from pipeline.heads.inputs.word_vectors import origin_of
from pipeline.heads.trained_head import HEAD_FILE, TENSORS_FILE
from pipeline.images.extract import extract
from pipeline.jobs.options import extract_options
from pipeline.progress import Monitor
from pipeline.shards.feature_set import read_set_index
from pipeline.shards.index import INDEX_FILE, read_index
from pipeline.text.vectors import load_vectors


def add_head(plan: Plan, experiment: Experiment, seed: int, images: Path, captions: Path) -> Path:
    """Add the step that trains a head on features of both sides."""
    out = plan.layout.head(experiment.name)

    def wanted() -> dict[str, Any]:
        return _head_as_wanted(plan, experiment, seed, images, captions)

    def make(monitor: Monitor) -> object:
        return fit(
            plan.layout.dataset,
            out,
            experiment=experiment,
            images=images,
            captions=captions,
            train_split=plan.split("train"),
            validation_split=plan.split("validation"),
            seed=seed,
            max_epochs=plan.max_epochs,
            leave_out_failed=plan.leave_out_failed,
            monitor=monitor,
        )

    fault = json_fault(out / HEAD_FILE, wanted)
    needs, size = (images, captions, *_own_vectors(plan, experiment)), f"head {experiment.head}"
    return plan.add(Step("train", experiment.name, out, needs, size, fault, make))


def add_finetuned(
    plan: Plan, experiment: Experiment, seed: int, images: Path, captions: Path, start: Path
) -> Path:
    """Add the step that trains a head and its image network on, from the trained head `start`."""
    how, out = experiment.finetuning, plan.layout.head(experiment.name)
    assert how is not None

    def wanted() -> dict[str, Any]:
        return {
            **_head_as_wanted(plan, experiment, seed, images, captions),
            "finetuning": {
                **asdict(how),
                "start_sha256": sha256_of_file(start / TENSORS_FILE),
                **weights_of(images),
            },
        }

    def make(monitor: Monitor) -> object:
        return finetune(
            plan.layout.dataset,
            out,
            experiment=experiment,
            start=start,
            images=images,
            captions=captions,
            weights=plan.extract.get("weights"),
            train_split=plan.split("train"),
            validation_split=plan.split("validation"),
            seed=seed,
            max_epochs=plan.max_epochs,
            leave_out_failed=plan.leave_out_failed,
            monitor=monitor,
        )

    described = json_fault(out / HEAD_FILE, wanted)

    def fault() -> str:
        found = described()
        return found or ("" if (out / WEIGHTS_FILE).is_file() else MISSING)

    needs, size = (images, captions, start), f"head {experiment.head} and its image network"
    return plan.add(Step("train", experiment.name, out, needs, size, fault, make))


def add_tuned_features(plan: Plan, experiment: Experiment, head: Path) -> Path:
    """Add the step that extracts features with the network that was tuned beside a head."""
    given = {**plan.extract, "weights": head / WEIGHTS_FILE}
    out, rows = plan.layout.features(experiment.embedded_images), len(plan.manifest.entries)
    recipe = recipe_for(plan, experiment.images)

    def fault() -> str:
        other = index_fault(out, rows, recipe.to_json())()
        if other or weights_of(out)["weights_sha256"] == sha256_of_file(head / WEIGHTS_FILE):
            return other
        return "made with other weights"

    def make(monitor: Monitor) -> object:
        if (out / INDEX_FILE).is_file() and fault():
            monitor.log(f"{out} holds features of an earlier training and is removed")
            shutil.rmtree(out)
        options = extract_options(given)
        return extract(
            plan.layout.dataset, out, recipe=experiment.images, monitor=monitor, **options
        )

    size = rows_of(recipe, rows)
    name = experiment.embedded_images
    return plan.add(Step("extract", name, out, (head,), size, fault, make, always=True))


def _head_as_wanted(
    plan: Plan, experiment: Experiment, seed: int, images: Path, captions: Path
) -> dict[str, Any]:
    """Return what the description of an experiment's head must say."""
    wanted: dict[str, Any] = {
        "kind": experiment.head,
        "settings": with_epochs_at_most(experiment.head, experiment.settings, plan.max_epochs),
        "seed": seed,
        "train_split": plan.split("train"),
        "validation_split": plan.split("validation"),
        "average_captions": experiment.average_captions,
        "made_from": hashes_of(plan, images, captions),
    }
    for file in _own_vectors(plan, experiment):
        wanted["word_vectors"] = origin_of(load_vectors(str(file), ()))
    return wanted


def _own_vectors(plan: Plan, experiment: Experiment) -> tuple[Path, ...]:
    """Return the dataset's own word vectors that an experiment's words start from, if any."""
    source = experiment.word_vectors
    return () if source is None or Path(source) not in plan.steps else (Path(source),)


def hashes_of(plan: Plan, images: Path, captions: Path) -> dict[str, str]:
    """Return the hashes of the dataset and of the features of both sides; see `made_from`."""
    return made_from(plan.layout.dataset, read_set_index(images), read_index(captions))
