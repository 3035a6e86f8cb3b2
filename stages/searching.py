"""Options for the searched embeddings and their models, and printing of answers."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from stages.command import PATH, add_options, option
from stages.console import CONSOLE, printable
from stages.experiment import DATASET, project_of, run_command
from stages.experiment_name import EXPERIMENT

SOURCES = ("embeddings", "head", "dataset", "encoder", "weights", "split")
"""Parameters of `source_options` besides the experiment."""

model_options = add_options(
    option(
        "--experiment",
        "Experiment or ensemble of params.yaml, a published system, or a YAML file with one "
        "experiment.",
        EXPERIMENT,
    ),
    option(
        "--embeddings",
        "Embedding file.  [default: data/search/DATASET/EXPERIMENT.h5; computed if missing]",
        PATH,
    ),
    option("--head", "Folder of the trained head.  [default: data/heads/DATASET/EXPERIMENT]", PATH),
    DATASET,
    option(
        "--encoder",
        "Folder of the fitted sentence encoder.  [default: data/text/DATASET/NAME.encoder]",
        PATH,
    ),
    option(
        "--weights",
        "Weights of the image network, for query images.  [default: as recorded in the head]",
    ),
)
"""Add the options of an experiment's files, which `sources_of` completes."""
source_options = add_options(
    model_options,
    option("--split", "Search only this split, or several separated by commas.  [default: all]"),
)


def sources_of(
    experiment: str, dataset: Path | None, weights: str | None, **files: Any
) -> dict[str, Any]:
    """Return the arguments of `Searcher` but the monitor; unset files are the usual ones."""
    from pipeline.experiments.searchers import find_sources
    from pipeline.retrieval.ensemble import ENSEMBLES
    from stages.plan import experiment_of

    params, layout = project_of(dataset)
    sources = find_sources(
        experiment,
        layout,
        partial(experiment_of, params),
        ensembles={*params.ensembles, *ENSEMBLES} - {*params.experiments},
        remedy=run_command(experiment, layout),
        monitor=CONSOLE,
        **files,
    )
    return {**sources, "weights": weights}


def tested_embeddings(experiment: str, dataset: Path | None) -> Path | None:
    """Return the embedding file of an experiment's test split; None if it is missing."""

    _, layout = project_of(dataset)
    files = (layout.ensemble(experiment), layout.embeddings(experiment))
    return next((file for file in files if file.is_file()), None)


def print_answers(answers: Sequence[dict[str, Any]], as_json: bool, **search: str) -> None:
    """Print one line per hit, with several queries each query before its hits; or a JSON object."""
    if as_json:
        click.echo(json.dumps({**search, "answers": answers}, indent=2))
        return
    for answer in answers:
        if len(answers) > 1:
            click.echo(printable(answer["query"]["sentence"]))
        for result in answer["results"]:
            rank, score, *rest = result.values()
            click.echo("\t".join((str(rank), f"{score:.6g}", *map(_cell, rest))))


def _cell(value: Any) -> str:
    """Return a text, or the four numbers of a box, as a column of an answer."""
    return printable(value) if isinstance(value, str) else " ".join(f"{v:g}" for v in value)
