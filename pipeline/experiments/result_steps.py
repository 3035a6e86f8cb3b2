"""The steps that embed a split, join embeddings to ensembles, and measure them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.experiments.checks import MISSING, difference, json_fault
from pipeline.experiments.head_steps import hashes_of
from pipeline.experiments.steps import Plan, Step
from pipeline.hashing import sha256_of_file
from pipeline.heads.embed import embed, require_head_of
from pipeline.heads.head_types import Experiment
from pipeline.heads.trained_head import TENSORS_FILE
from pipeline.jobs.options import Selection
from pipeline.progress import Monitor
from pipeline.retrieval.embedding_file import read_provenance
from pipeline.retrieval.ensemble import ensemble
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.tables import PROVENANCE_FILE


def add_embeddings(
    plan: Plan, experiment: Experiment, images: Path, captions: Path, head: Path
) -> Path:
    """Add the step that embeds the test split with a head."""
    out, test = plan.layout.embeddings(experiment.name), plan.split("test")

    def fault() -> str:
        if not out.is_file():
            return MISSING
        found = read_provenance(out)
        wanted = {
            "tensors_sha256": sha256_of_file(head / TENSORS_FILE),
            "split": test,
            **hashes_of(plan, images, captions),
        }
        return difference(found, wanted)

    def make(monitor: Monitor) -> object:
        require_head_of(head, experiment.name)
        return embed(
            plan.layout.dataset,
            out,
            head=head,
            images=images,
            captions=captions,
            select=Selection(test, leave_out_failed=plan.leave_out_failed),
            monitor=monitor,
        )

    needs = (images, captions, head)
    size = f"{len(plan.manifest.select(test))} images of split {test}"
    return plan.add(Step("embed", experiment.name, out, needs, size, fault, make))


def add_ensemble(plan: Plan, name: str, members: Mapping[str, float]) -> None:
    """Add the steps of an ensemble, whose members are to be added before it."""
    out = plan.layout.ensemble(name)
    files = {member: plan.layout.embeddings(member) for member in members}

    def fault() -> str:
        if not out.is_file():
            return MISSING
        found = {m: {"embeddings_sha256": sha256_of_file(f)} for m, f in files.items()}
        wanted = {"members": found, "weights": [*members.values()]}
        return difference(read_provenance(out), wanted)

    def make(monitor: Monitor) -> object:
        return ensemble(files, out, name=name, weights=members)

    size = f"{len(files)} members"
    plan.add(Step("ensemble", name, out, tuple(files.values()), size, fault, make))
    add_evaluation(plan, name, out)


def add_evaluation(plan: Plan, name: str, embeddings: Path) -> None:
    """Add the step that measures embeddings."""
    out = plan.layout.evaluation(name)

    def wanted() -> dict[str, Any]:
        return {"embeddings_sha256": sha256_of_file(embeddings)}

    def make(monitor: Monitor) -> object:
        return evaluate(embeddings, out, monitor=monitor, **plan.evaluate)

    fault = json_fault(out / PROVENANCE_FILE, wanted)
    plan.add(Step("evaluate", name, out, (embeddings,), "a table", fault, make))
