"""The job of `pipeline localize`: phrase heads, and localization of a split."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pipeline.experiments.layout import seeded
from pipeline.experiments.steps.head_steps import expected_training, head_record
from pipeline.experiments.steps.step import Plan, Step
from pipeline.heads.head_types import Experiment
from pipeline.heads.trained_head import TENSORS_FILE
from pipeline.regions import RegionError
from pipeline.regions.localization.localize import localize
from pipeline.regions.localization.localized import read_localized
from pipeline.regions.localization.sources import Sources
from pipeline.regions.localization.train_localizer import fit_to_phrases
from pipeline.store.current.record import Record
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import Monitor


def localize_experiments(
    plan: Plan,
    experiments: Iterable[tuple[Experiment, Sources]],
    *,
    seeds: int = 1,
    validation_images: int | None = None,
    monitor: Monitor,
) -> tuple[str, ...]:
    """Train missing and stale heads of experiments, then localize; return the changed steps."""
    distinct: dict[Sources, Sources] = {}
    for experiment, data in experiments:
        sources = distinct.setdefault(data, data)  # equal ones are opened once
        if not experiment.of_phrases:
            raise RegionError(
                f"{experiment.name!r} is fitted on images and captions, not on regions and "
                "phrases; use the presets wang2016-phrases-*, or `pipeline run` for the others"
            )
        for seed in range(plan.training.seed, plan.training.seed + seeds):
            start = None
            if experiment.goes_on_from is not None:
                base = plan.experiment_named(experiment.goes_on_from)
                start = _add_head(plan, base, sources, validation_images, None, seed)
            head = _add_head(plan, experiment, sources, validation_images, start, seed)
            name = seeded(experiment.name, seed, plan.training.seed)
            _add_localization(plan, name, sources, head)
    changed, failures = plan.make(monitor)
    if failures:
        causes = dict.fromkeys(failures.values())  # each once, also if several steps need it
        raise RegionError("; ".join(f"{failure.step}: {failure.error}" for failure in causes))
    return changed


def _add_head(
    plan: Plan,
    experiment: Experiment,
    sources: Sources,
    validation_images: int | None,
    start: Path | None,
    seed: int,
) -> Path:
    """Add the step that trains a phrase head with a seed."""
    experiment = replace(experiment, name=seeded(experiment.name, seed, plan.training.seed))
    out = plan.layout.head(experiment.name)

    def expected() -> Record:
        made_from = sources.opened.made_from_with(validation_images)
        if start is not None:
            made_from["start_sha256"] = sha256_of_file(start / TENSORS_FILE)
        return {**expected_training(plan, experiment, seed), "made_from": made_from}

    def make(monitor: Monitor) -> object:
        trained = fit_to_phrases(
            sources,
            out,
            experiment=experiment,
            start=start,
            validation_images=validation_images,
            training=replace(plan.training, seed=seed, monitor=monitor),
        )
        monitor.log(", ".join(f"{k} {v:g}" for k, v in trained.chosen.items() if k != "best"))
        return trained

    needs = (sources.truth, sources.phrases, *([] if start is None else [start]))
    size = f"head {experiment.head}"
    return plan.add(Step("train", experiment.name, out, needs, size, make, head_record, expected))


def _add_localization(plan: Plan, name: str, sources: Sources, head: Path) -> Path:
    """Add the step that localizes a split with a trained head."""
    out = plan.layout.localization(name)

    def read(file: Path) -> Record | None:
        return read_localized(file).provenance if file.is_file() else None

    def expected() -> Record:
        return {
            "tensors_sha256": sha256_of_file(head / TENSORS_FILE),
            "split": plan.split("test"),
            **sources.opened.made_from,
        }

    def make(monitor: Monitor) -> object:
        return localize(
            sources,
            out,
            head=head,
            split=plan.test_split,
            leave_out_failed=plan.training.leave_out_failed,
            monitor=monitor,
        )

    needs, size = (sources.regions, sources.phrases, head), "boxes of phrases"
    return plan.add(Step("localize", name, out, needs, size, make, read, expected))
