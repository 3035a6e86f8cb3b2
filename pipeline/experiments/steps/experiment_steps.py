"""All steps of an experiment, in topological order."""

from dataclasses import replace

from pipeline.experiments.layout import seeded
from pipeline.experiments.steps.head_steps import add_head, add_tuned_features
from pipeline.experiments.steps.input_steps import add_features, add_own_vectors, add_text
from pipeline.experiments.steps.result_steps import add_embeddings, add_evaluation
from pipeline.experiments.steps.step import Plan
from pipeline.heads import HeadError
from pipeline.heads.head_types import Experiment


def add_experiment(plan: Plan, experiment: Experiment, seed: int) -> None:
    """Add the steps of an experiment, trained with a seed.

    Raises
    ------
    DatasetError
        The dataset lacks a split.
    HeadError
        The experiment is on regions and phrases.
    """
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
