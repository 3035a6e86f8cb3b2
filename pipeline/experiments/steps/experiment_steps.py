"""All steps of an experiment, from its inputs to its table, and of an ensemble."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from pipeline.datasets.splits import require_captions
from pipeline.experiments.layout import seeded
from pipeline.experiments.steps.given_steps import given_set
from pipeline.experiments.steps.head_steps import add_head, add_tuned_features, hashes_of
from pipeline.experiments.steps.input_steps import (
    add_features,
    add_own_vectors,
    add_text,
    expected_captions,
    expected_images,
)
from pipeline.experiments.steps.step import Plan, Step
from pipeline.heads import HeadError
from pipeline.heads.embed import Stored, embed, require_head_of
from pipeline.heads.head_types import Experiment, make_head
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs, require_averageable
from pipeline.heads.inputs.word_vectors import require_token_ids
from pipeline.heads.trained_head import TENSORS_FILE
from pipeline.retrieval.embedding_file import IN_FULL, embeddings_record
from pipeline.retrieval.ensemble import ensemble
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.ranking.protocols import resolve_protocol
from pipeline.retrieval.tables import PROVENANCE_FILE
from pipeline.store.current.readers import json_record
from pipeline.store.current.record import Record
from pipeline.store.hashing import sha256_of_file
from pipeline.store.jobs.options import Selection
from pipeline.store.progress import Monitor
from pipeline.store.wording import counted


def add_experiment(plan: Plan, experiment: Experiment, seed: int) -> None:
    """Add the steps of an experiment, trained with a seed."""
    if experiment.of_phrases:
        raise HeadError(
            f"{experiment.name!r} is fitted on regions and phrases, not on images and "
            "captions; use `pipeline localize`"
        )
    experiment = replace(
        experiment,
        name=seeded(experiment.name, seed, plan.training.seed),
        word_vectors=add_own_vectors(plan, experiment.word_vectors),
    )
    features = add_features(plan, experiment.images)
    captions = add_text(plan, experiment.captions)
    require_fit(plan, experiment, features, captions)
    start = None
    if experiment.finetuning is not None:
        start = plan.layout.head(seeded(experiment.finetuning.start, seed, plan.training.seed))
        if start not in plan.steps:
            add_experiment(plan, plan.experiment_named(experiment.finetuning.start), seed)
    head = add_head(plan, experiment, seed, features, captions, start)
    if experiment.finetuning is not None:
        features = add_tuned_features(plan, experiment, head)
    embeddings = add_embeddings(plan, experiment, features, captions, head)
    add_evaluation(plan, experiment.name, embeddings)


def require_fit(plan: Plan, experiment: Experiment, images: Path, captions: Path) -> None:
    """Raise HeadError, before any step, if a head cannot use features that were made elsewhere."""
    sides = [given_set(plan, images), given_set(plan, captions)]
    # The head zero-shot compares weights, which a set that is to be computed does not have yet.
    if not any(sides) or (experiment.head == "zero-shot" and not all(sides)):
        return
    specs = [side and FeatureSpec.of(side) for side in sides]
    inputs = HeadInputs(
        specs[0] or expected_images(plan, experiment.images),
        specs[1] or expected_captions(experiment.captions),
    )
    try:
        make_head(experiment.head, experiment.settings, inputs)
        if experiment.average_captions:
            require_averageable(inputs.captions)
        if experiment.word_vectors is not None:
            require_token_ids(inputs.captions)
    except HeadError as error:
        raise HeadError(f"{experiment.name}: {error}") from error


def add_embeddings(
    plan: Plan, experiment: Experiment, images: Path, captions: Path, head: Path
) -> Path:
    """Add the step that embeds the test split with a head."""
    out, test = plan.layout.embeddings(experiment.name), plan.split("test")
    require_captions(plan.manifest, test)

    def expected() -> Record:
        return {
            "tensors_sha256": sha256_of_file(head / TENSORS_FILE),
            "split": test,
            **IN_FULL,
            "csls": plan.split("train") if experiment.csls else None,
            **hashes_of(plan, images, captions),
        }

    def make(monitor: Monitor) -> object:
        require_head_of(head, experiment.name)
        return embed(
            plan.layout.dataset,
            out,
            head=head,
            images=images,
            captions=captions,
            select=Selection(test, leave_out_failed=plan.training.leave_out_failed),
            stored=Stored(csls=experiment.csls),
            monitor=monitor,
        )

    needs = (images, captions, head)
    size = f"{counted(len(plan.manifest.select(test)), 'image')} of split {test}"
    return plan.add(
        Step("embed", experiment.name, out, needs, size, make, embeddings_record, expected)
    )


def add_ensemble(plan: Plan, name: str, members: Mapping[str, float]) -> None:
    """Add the steps of an ensemble, whose members must be added first."""
    out = plan.layout.ensemble(name)
    files = {member: plan.layout.embeddings(member) for member in members}

    def expected() -> Record:
        hashes = {m: {"embeddings_sha256": sha256_of_file(f)} for m, f in files.items()}
        return {"members": hashes, "weights": [*members.values()]}

    def make(monitor: Monitor) -> object:
        return ensemble(files, out, name=name, weights=members)

    needs, size = tuple(files.values()), f"{counted(len(files), 'member')}"
    plan.add(Step("ensemble", name, out, needs, size, make, embeddings_record, expected))
    add_evaluation(plan, name, out)


def add_evaluation(plan: Plan, name: str, embeddings: Path) -> None:
    """Add the step that evaluates embeddings."""
    out = plan.layout.evaluation(name)

    def read(folder: Path) -> Record | None:
        record = json_record(folder / PROVENANCE_FILE)
        return record and {"protocol": None, "dim": None, **record}

    def expected() -> Record:
        protocol = plan.evaluate.get("protocol")
        number = plan.evaluate.get("captions_per_image", 5)
        dim = plan.evaluate.get("dim")
        embedded = {"embeddings_sha256": sha256_of_file(embeddings), "dim": dim}
        if protocol is None:
            return {**embedded, "protocol": None, "captions_per_image": number}
        return {**embedded, "protocol": asdict(resolve_protocol(protocol, number))}

    def make(monitor: Monitor) -> object:
        return evaluate(embeddings, out, monitor=monitor, **plan.evaluate)

    plan.add(Step("evaluate", name, out, (embeddings,), "a table", make, read, expected))
