"""The options of `search` and `serve` that say which embeddings are searched, and with what."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipeline.experiments.layout import Layout, NotMade, unseeded
from stages.console import CONSOLE
from stages.experiment import layout_of, made_by_run, require_made

if TYPE_CHECKING:
    from pipeline.heads.head_types import Experiment
    from stages.params import Params

Command = TypeVar("Command", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)


def source_options(command: Command) -> Command:
    """Add --experiment, and --embeddings, --head, --dataset, --encoder, --weights and --split."""
    for option in (
        click.option(
            "--split",
            help="Search this split alone, or several with commas between.  [default: all]",
        ),
        click.option(
            "--weights",
            help="Of the image network, for files.  [default: as the head's record says]",
        ),
        click.option(
            "--encoder",
            type=_PATH,
            help="Folder of the fitted sentence encoder.  "
            "[default: data/text/DATASET/NAME.encoder]",
        ),
        click.option("--dataset", type=_PATH, help="[default: that of params.yaml]"),
        click.option(
            "--head",
            type=_PATH,
            help="Folder of the trained head.  [default: data/heads/DATASET/EXPERIMENT]",
        ),
        click.option(
            "--embeddings",
            type=_PATH,
            help="Embedding file.  [default: data/embeddings/DATASET/EXPERIMENT.all.h5, or "
            "data/ensembles/DATASET/EXPERIMENT.all.h5 of an ensemble, made if need be]",
        ),
        click.option(
            "--experiment",
            help="Name of an experiment or ensemble: of params.yaml, or a published system.",
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
    """Return where an experiment's embeddings are stored and what belongs to them.

    The embedding file of the whole dataset is made where it is missing or out of date.

    Returns
    -------
    dict
        The arguments of `pipeline.search.searcher.Searcher`, all but the monitor. What no option
        names follows from params.yaml and the layout. An ensemble has neither head nor encoder.

    Raises
    ------
    ParamsError
        There is no experiment of this name.
    NotMade
        It has not been trained on the dataset.
    """
    # Here, so that --help does not import yaml.
    from stages.params import load_params

    params = load_params()
    layout = layout_of(dataset, params.dataset)
    of_ensemble = _is_ensemble(params, layout, experiment)
    if embeddings is None:
        embeddings = _searched(params, layout, experiment, head, split)
    if not of_ensemble:
        captions = _experiment_of(params, experiment).captions.name
        head, encoder = head or layout.head(experiment), encoder or layout.encoder(captions)
    return {
        "embeddings": embeddings,
        "head": head,
        "dataset": layout.dataset,
        "encoder": encoder,
        "weights": weights,
        "split": split,
    }


def own_embeddings(experiment: str, dataset: Path | None) -> Path | None:
    """Return the embedding file of an experiment's test split, None if there is none."""
    # Here, so that --help does not import yaml.
    from stages.params import load_params

    layout = layout_of(dataset, load_params().dataset)
    files = (layout.ensemble(experiment), layout.embeddings(experiment))
    return next((file for file in files if file.is_file()), None)


def region_sources_of(
    experiment: str,
    embeddings: Path | None,
    head: Path | None,
    dataset: Path | None,
    encoder: Path | None,
    weights: str | None,
    split: str | None,
) -> dict[str, Any]:
    """Return where an experiment's localization file is stored and what belongs to it.

    Returns
    -------
    dict
        The arguments of `pipeline.search.region_searcher.RegionSearcher`, all but the monitor;
        `embeddings`, if given, is the localization file.

    Raises
    ------
    UsageError
        A split is named; a localization file is of one.
    ParamsError, NotMade
    """
    if split is not None:
        raise click.UsageError("--split does not go with --regions: a localization file has one")
    # Here, so that --help does not import yaml.
    from stages.params import load_params

    params = load_params()
    layout = layout_of(dataset, params.dataset)
    of = _experiment_of(params, experiment)
    file = embeddings or layout.localization(experiment)
    if not file.is_file():
        if not of.of_phrases:
            raise click.UsageError(f"{experiment} is not fitted on regions; leave out --regions")
        raise NotMade(
            f"{file} not found; `pipeline localize {experiment} --dataset {layout.dataset}` makes "
            "it, or name a file with --embeddings"
        )
    return {
        "file": file,
        "head": head or layout.head(experiment),
        "dataset": layout.dataset,
        "encoder": encoder or layout.encoder(of.captions.name),
    }


def _searched(
    params: "Params", layout: Layout, experiment: str, head: Path | None, split: str | None
) -> Path:
    """Return the embedding file of the whole dataset; see `searched_embeddings`."""
    # Here, since these import torch, which takes seconds.
    from pipeline.experiments.whole_dataset import searched_embeddings

    if _is_ensemble(params, layout, experiment):
        require_made(layout.ensemble(experiment), experiment, layout)

    def named(name: str) -> "Experiment":
        found = _experiment_of(params, name)
        if found.of_phrases:
            raise click.UsageError(f"{name} is fitted on regions and phrases; add --regions")
        return found

    return searched_embeddings(
        experiment,
        layout,
        named,
        remedy=made_by_run(experiment, layout),
        head=head,
        split=split,
        monitor=CONSOLE,
    )


def _is_ensemble(params: "Params", layout: Layout, name: str) -> bool:
    from pipeline.retrieval.ensemble import ENSEMBLES

    if name in params.experiments:
        return False
    known = unseeded(name) in {*params.ensembles, *ENSEMBLES}
    return known or layout.ensemble(name).is_file()


def _experiment_of(params: "Params", name: str) -> "Experiment":
    # Here, since the presets import torch.
    from stages.plan import experiment_of

    return experiment_of(params, unseeded(name))
