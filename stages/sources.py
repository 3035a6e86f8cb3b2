"""The options of `search` and `serve` that say which embeddings are searched, and with what."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipeline.errors import PipelineError
from stages.experiment import layout_of

if TYPE_CHECKING:
    from stages.params import Params

Command = TypeVar("Command", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)


class NoEmbeddings(PipelineError):
    """The experiment has no embedding file yet."""


def source_options(command: Command) -> Command:
    """Add --experiment, and --embeddings, --head, --dataset, --encoder and --weights."""
    for option in (
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
            help="Embedding file.  [default: data/embeddings/DATASET/EXPERIMENT.h5, or "
            "data/ensembles/DATASET/EXPERIMENT.h5 of an ensemble]",
        ),
        click.option(
            "--experiment",
            required=True,
            help="Name of an experiment, or of an ensemble, in params.yaml.",
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
) -> dict[str, Any]:
    """Return where an experiment's embeddings lie and what belongs to them.

    Returns
    -------
    dict
        The arguments of `pipeline.search.searcher.Searcher`, all but the monitor. What no option
        names follows from params.yaml and the layout. An ensemble has neither head nor encoder.

    Raises
    ------
    ParamsError, NoEmbeddings
    """
    # Here, so that --help does not import yaml.
    from stages.params import load_params

    params = load_params()
    layout = layout_of(dataset, params.dataset)
    if experiment in params.ensembles or layout.ensemble(experiment).is_file():
        made_by = f"pipeline ensemble --name {experiment}"
        embeddings = embeddings or layout.ensemble(experiment)
    else:
        made_by = f"pipeline embed --experiment {experiment}"
        embeddings = embeddings or layout.embeddings(experiment)
        head = head or layout.head(experiment)
        encoder = encoder or layout.encoder(_captions_of(params, experiment))
    if not embeddings.is_file():
        raise NoEmbeddings(
            f"{embeddings} is not there, so {experiment!r} has no embeddings to search yet; make "
            f"them with `{made_by}`, or name a file with --embeddings"
        )
    return {
        "embeddings": embeddings,
        "head": head,
        "dataset": layout.dataset,
        "encoder": encoder,
        "weights": weights,
    }


def region_sources_of(
    experiment: str,
    embeddings: Path | None,
    head: Path | None,
    dataset: Path | None,
    encoder: Path | None,
    weights: str | None,
) -> dict[str, Any]:
    """Return where an experiment's localization file lies and what belongs to it.

    Returns
    -------
    dict
        The arguments of `pipeline.search.region_searcher.RegionSearcher`, all but the monitor;
        `embeddings`, if given, is the localization file.

    Raises
    ------
    ParamsError, NoEmbeddings
    """
    # Here, so that --help does not import yaml.
    from stages.params import load_params

    params = load_params()
    layout = layout_of(dataset, params.dataset)
    file = embeddings or layout.localization(experiment)
    if not file.is_file():
        raise NoEmbeddings(
            f"{file} is not there; make it with `pipeline localize {experiment}`, or name a file "
            "with --embeddings"
        )
    return {
        "file": file,
        "head": head or layout.head(experiment),
        "dataset": layout.dataset,
        "encoder": encoder or layout.encoder(_captions_of(params, experiment)),
    }


def _captions_of(params: "Params", experiment: str) -> str:
    """Return the name of an experiment's caption features."""
    if experiment in params.experiments:
        return params.experiments[experiment].captions
    # Only here: the presets take torch.
    from stages.plan import experiment_of

    return experiment_of(params, experiment).captions.name
