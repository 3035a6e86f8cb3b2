"""Steps that train heads, with or without an image network, and extract fine-tuned features."""

from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pipeline.experiments.steps.input_steps import recipe_for, rows_of
from pipeline.experiments.steps.step import Plan, Step
from pipeline.heads.finetuning import WEIGHTS_FILE
from pipeline.heads.finetuning.finetune import finetune
from pipeline.heads.fit import fit
from pipeline.heads.head_types import Experiment, trained_with, with_precision
from pipeline.heads.inputs.pairs import made_from
from pipeline.heads.inputs.word_vectors import origin_of
from pipeline.heads.trained_head import HEAD_FILE, TENSORS_FILE
from pipeline.images.extract import extract
from pipeline.store.builder.reuse import supersede
from pipeline.store.current.readers import features_record, json_record, weights_record
from pipeline.store.current.record import Record
from pipeline.store.hashing import sha256_of_file
from pipeline.store.jobs.options import extract_options
from pipeline.store.progress import Monitor
from pipeline.store.shards.feature_set import read_set_index
from pipeline.store.shards.index import INDEX_FILE, read_index
from pipeline.text.vectors import VectorsError, load_vectors


def add_head(
    plan: Plan,
    experiment: Experiment,
    seed: int,
    images: Path,
    captions: Path,
    start: Path | None = None,
) -> Path:
    """Add the step that trains a head, or fine-tunes the head `start` with its image network."""
    out = plan.layout.head(experiment.name)

    def read(folder: Path) -> Record | None:
        tuned = start is None or (folder / WEIGHTS_FILE).is_file()
        return head_record(folder) if tuned else None

    def expected() -> Record:
        record = expected_training(plan, experiment, seed)
        record["made_from"] = hashes_of(plan, images, captions)
        if start is None:
            record |= _vectors_record(experiment.word_vectors)
        tuned = with_precision(experiment, plan.training.precision).finetuning
        if tuned is not None and start is not None:
            tensors = sha256_of_file(start / TENSORS_FILE)
            how = {**asdict(tuned), "start_sha256": tensors}
            record["finetuning"] = {**how, **weights_record(images)}
        return record

    def make(monitor: Monitor) -> object:
        given: dict[str, Any] = {
            "experiment": experiment,
            "images": images,
            "captions": captions,
            "training": replace(plan.training, seed=seed, monitor=monitor),
        }
        if start is None:
            encoder = plan.layout.encoder(experiment.captions.name)
            return fit(plan.layout.dataset, out, encoder=encoder, **given)
        weights = plan.extract.get("weights")
        return finetune(plan.layout.dataset, out, start=start, weights=weights, **given)

    needs = (images, captions, *_own_vectors(plan, experiment), *([start] if start else []))
    size = f"head {experiment.head}{' and its image network' if start else ''}"
    return plan.add(Step("train", experiment.name, out, needs, size, make, read, expected))


def add_tuned_features(plan: Plan, experiment: Experiment, head: Path) -> Path:
    """Add the step that extracts features with the network fine-tuned with a head."""
    given = {**plan.extract, "weights": head / WEIGHTS_FILE, "update": True}
    out, rows = plan.layout.features(experiment.embedded_images), len(plan.manifest.entries)
    recipe = recipe_for(plan, experiment.images)

    def expected() -> Record:
        weights = sha256_of_file(head / WEIGHTS_FILE)
        return {"rows": rows, "recipe": recipe.to_json(), "weights_sha256": weights}

    def make(monitor: Monitor) -> object:
        if (out / INDEX_FILE).is_file() and step.stale():
            supersede(out)
        options = extract_options(given)
        return extract(
            plan.layout.dataset, out, recipe=experiment.images, monitor=monitor, **options
        )

    name, size = experiment.embedded_images, rows_of(recipe, rows)
    step = Step("extract", name, out, (head,), size, make, features_record, expected, always=True)
    return plan.add(step)


def head_record(folder: Path) -> Record | None:
    """Return the record of a trained head, with what it omits; None if it is missing."""
    record = json_record(folder / HEAD_FILE)
    return record if record is None else {"precision": "float32", "plugin": "", **record}


def expected_training(plan: Plan, experiment: Experiment, seed: int) -> dict[str, Any]:
    """Return the expected record of any head of an experiment, without its data."""
    training = replace(plan.training, seed=seed)
    return trained_with(experiment, training, plan.split("train"), plan.split("validation"))


def _vectors_record(source: str | None) -> dict[str, Any]:
    """Return the entry of a head's word vectors, unless their file is no longer there."""
    with suppress(VectorsError):
        origin = None if source is None else origin_of(load_vectors(source, ()))
        return {"word_vectors": origin}
    return {}


def _own_vectors(plan: Plan, experiment: Experiment) -> tuple[Path, ...]:
    """Return the dataset's own word vectors that initialise an experiment's embedding, if any."""
    source = experiment.word_vectors
    return () if source is None or Path(source) not in plan.steps else (Path(source),)


def hashes_of(plan: Plan, images: Path, captions: Path) -> dict[str, str]:
    """Return the hashes of the dataset and of image and caption features; see `made_from`."""
    return made_from(plan.layout.dataset, read_set_index(images), read_index(captions))
