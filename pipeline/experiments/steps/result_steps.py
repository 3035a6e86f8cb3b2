"""Steps that embed a split, combine embeddings in ensembles, and evaluate them."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from pipeline.experiments.records import Record, json_record
from pipeline.experiments.steps.head_steps import hashes_of
from pipeline.experiments.steps.step import Plan, Step
from pipeline.heads.embed import embed, require_head_of
from pipeline.heads.head_types import Experiment
from pipeline.heads.trained_head import TENSORS_FILE
from pipeline.retrieval.embedding_file import read_provenance, read_store
from pipeline.retrieval.ensemble import ensemble
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.ranking.protocols import resolve_protocol
from pipeline.retrieval.tables import PROVENANCE_FILE
from pipeline.store.hashing import sha256_of_file
from pipeline.store.jobs.options import Selection
from pipeline.store.progress import Monitor
from pipeline.store.wording import counted

# How the steps store vectors: `pipeline embed --store` and `--dim` are for other files.
_IN_FULL: Record = {"store": "float32", "dim": None}


def add_embeddings(
    plan: Plan, experiment: Experiment, images: Path, captions: Path, head: Path
) -> Path:
    """Add the step that embeds the test split with a head."""
    out, test = plan.layout.embeddings(experiment.name), plan.split("test")

    def expected() -> Record:
        return {
            "tensors_sha256": sha256_of_file(head / TENSORS_FILE),
            "split": test,
            **_IN_FULL,
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
        found = {m: {"embeddings_sha256": sha256_of_file(f)} for m, f in files.items()}
        return {"members": found, "weights": [*members.values()]}

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
        asked = plan.evaluate.get("protocol")
        number = plan.evaluate.get("captions_per_image", 5)
        dim = plan.evaluate.get("dim")
        embedded = {"embeddings_sha256": sha256_of_file(embeddings), "dim": dim}
        if asked is None:
            return {**embedded, "protocol": None, "captions_per_image": number}
        return {**embedded, "protocol": asdict(resolve_protocol(asked, number))}

    def make(monitor: Monitor) -> object:
        return evaluate(embeddings, out, monitor=monitor, **plan.evaluate)

    plan.add(Step("evaluate", name, out, (embeddings,), "a table", make, read, expected))


def embeddings_record(file: Path) -> Record | None:
    """Return the provenance of an embedding file and how it stores its vectors.

    None if the file is missing.

    Raises
    ------
    EmbeddingsError
        The file is corrupt.
    """
    if not file.is_file():
        return None
    return {**_IN_FULL, **read_provenance(file), "store": read_store(file)}
