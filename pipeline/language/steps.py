"""Steps of a language model, and of the head of its embedding space."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.datasets.manifest import MANIFEST_FILE
from pipeline.experiments.layout import Layout, seeded
from pipeline.experiments.steps.experiment_steps import add_experiment
from pipeline.experiments.steps.input_steps import add_features, add_text
from pipeline.experiments.steps.step import Plan, Step
from pipeline.heads.experiments import Size
from pipeline.heads.trained_head import TENSORS_FILE
from pipeline.language import LanguageError
from pipeline.language.data import LanguageInputs
from pipeline.language.model_types import LanguageExperiment
from pipeline.language.presets import LANGUAGE_PRESETS, resolve_language_experiment
from pipeline.language.train_language_model import fit_language_model
from pipeline.language.trained_model import LANGUAGE_FILE, load_language_model
from pipeline.store.current.readers import json_record
from pipeline.store.current.record import Record
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import Monitor
from pipeline.store.shards.feature_set import read_set_index


def add_language_model(plan: Plan, experiment: LanguageExperiment, seed: int) -> Path:
    """Add the steps of a language model, and of the head of its embedding space."""
    name = seeded(experiment.name, seed, plan.training.seed)
    experiment = replace(experiment, name=name).at_most(plan.training.max_epochs)
    features = {"sentences": add_text(plan, experiment.sentences)}
    if experiment.takes_tags:
        features["tags"] = add_text(plan, experiment.tags)
    if experiment.condition == "image":
        features["images"] = add_features(plan, experiment.images)
    head: Path | None = None
    if experiment.condition == "sentence":
        space = plan.experiment_named(experiment.space)
        head = plan.layout.head(seeded(space.name, seed, plan.training.seed))
        if head not in plan.steps:
            add_experiment(plan, space, seed)
        features["captions"] = plan.layout.text(space.captions.name)
        if experiment.points == "images":
            features["images"] = plan.layout.features(space.embedded_images)
    corpus = plan.corpus if experiment.corpus else None
    inputs = LanguageInputs(**features, head=head, corpus=corpus)
    inputs.named(experiment)  # refuses a missing corpus before anything runs
    out = plan.layout.language(experiment.name)

    def read(folder: Path) -> Record | None:
        return json_record(folder / LANGUAGE_FILE)

    def expected() -> Record:
        indexes = {f"{kind}_sha256": read_set_index(path) for kind, path in features.items()}
        hashes = {name: index.content_sha256 for name, index in indexes.items()}
        manifest = sha256_of_file(plan.layout.dataset / MANIFEST_FILE)
        origin = None
        if head is not None:
            tensors = sha256_of_file(head / TENSORS_FILE)
            origin = {"experiment": head.name, "tensors_sha256": tensors}
        if corpus is not None:
            hashes["corpus_file_sha256"] = sha256_of_file(corpus)
        return {
            "model": experiment.model,
            "settings": experiment.settings,
            "seed": seed,
            "train_split": plan.split("train"),
            "validation_split": plan.split("validation"),
            "made_from": {"manifest_sha256": manifest, **hashes},
            "head": origin,
        }

    def make(monitor: Monitor) -> object:
        return fit_language_model(
            plan.layout.dataset,
            out,
            experiment=experiment,
            inputs=inputs,
            training=replace(plan.training, seed=seed, monitor=monitor),
        )

    needs = (*features.values(), *([head] if head is not None else []))
    size = f"language model {experiment.model}"
    return plan.add(Step("train", name, out, needs, size, make, read, expected))


class LanguageModels:
    """Language models as experiments of `pipeline.run`; see `ExperimentKind`."""

    def names(self) -> Sequence[str]:
        """Return the published language models."""
        return [*LANGUAGE_PRESETS]

    def check(self, names: Sequence[str], corpus: Path | None) -> None:
        """Raise LanguageError if no named model is trained on a given plain text."""
        of_text = [name for name, preset in LANGUAGE_PRESETS.items() if preset.paper.corpus]
        if corpus is not None and not {name.partition("@")[0] for name in names} & {*of_text}:
            raise LanguageError(
                f"none of {', '.join(names)} is trained on plain text, so `corpus={corpus}` would "
                f"have no effect; run {' or '.join(of_text)}"
            )

    def add(self, plan: Plan, name: str, size: Size, seed: int) -> None:
        """Add the steps of a published model, and of the head of its embedding space."""
        add_language_model(plan, resolve_language_experiment(name, size=size), seed)

    def out(self, layout: Layout, name: str) -> Path:
        """Return the folder of a trained model."""
        return layout.language(name)

    def perplexity(self, out: Path) -> float:
        """Return the validation perplexity of a trained model."""
        return load_language_model(out).chosen["perplexity"]


LANGUAGE_MODELS = LanguageModels()
