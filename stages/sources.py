"""Options of `search` and `serve` for the searched embeddings and their models."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from stages.console import CONSOLE
from stages.experiment import layout_of, made_by_run

Command = TypeVar("Command", bound=Callable[..., Any])

SOURCES = ("embeddings", "head", "dataset", "encoder", "weights", "split")
"""Parameters of `source_options` besides the experiment."""

_PATH = click.Path(path_type=Path)


def source_options(command: Command) -> Command:
    """Add --experiment, and --embeddings, --head, --dataset, --encoder, --weights and --split."""
    for option in (
        click.option(
            "--split",
            help="Search only this split, or several separated by commas.  [default: all]",
        ),
        click.option(
            "--weights",
            help="Weights of the image network, for query files.  [default: as recorded in the "
            "head]",
        ),
        click.option(
            "--encoder",
            type=_PATH,
            help="Folder of the fitted sentence encoder.  "
            "[default: data/text/DATASET/NAME.encoder]",
        ),
        click.option(
            "--dataset", type=_PATH, help="Prepared dataset.  [default: as in params.yaml]"
        ),
        click.option(
            "--head",
            type=_PATH,
            help="Folder of the trained head.  [default: data/heads/DATASET/EXPERIMENT]",
        ),
        click.option(
            "--embeddings",
            type=_PATH,
            help="Embedding file.  [default: data/search/DATASET/EXPERIMENT.h5; computed if "
            "missing]",
        ),
        click.option(
            "--experiment",
            help="Experiment or ensemble of params.yaml, or a published system.",
        ),
    ):
        command = option(command)
    return command


def sources_of(
    experiment: str,
    embeddings: Path | None,
    head: Path | None,
    dataset: Path | None,
    encoder: Path | None,
    weights: str | None,
    split: str | None,
) -> dict[str, Any]:
    """Return the arguments of `Searcher`, except the monitor.

    Unset options follow from params.yaml and the layout; see
    `pipeline.experiments.searchers.find_sources`.

    Raises
    ------
    ParamsError
        No experiment has this name.
    NotMade
        The experiment has not been trained on the dataset.
    """
    # Here, so that --help imports neither yaml nor torch.
    from pipeline.experiments.searchers import find_sources
    from pipeline.retrieval.ensemble import ENSEMBLES
    from stages.params import load_params
    from stages.plan import experiment_of

    params = load_params()
    layout = layout_of(dataset, params.dataset)
    sources = find_sources(
        experiment,
        layout,
        partial(experiment_of, params),
        ensembles={*params.ensembles, *ENSEMBLES} - {*params.experiments},
        remedy=made_by_run(experiment, layout),
        embeddings=embeddings,
        head=head,
        encoder=encoder,
        split=split,
        monitor=CONSOLE,
    )
    return {**sources, "weights": weights}


def own_embeddings(experiment: str, dataset: Path | None) -> Path | None:
    """Return the embedding file of an experiment's test split; None if it is missing."""
    # Here, so that --help does not import yaml.
    from stages.params import load_params

    layout = layout_of(dataset, load_params().dataset)
    files = (layout.ensemble(experiment), layout.embeddings(experiment))
    return next((file for file in files if file.is_file()), None)
