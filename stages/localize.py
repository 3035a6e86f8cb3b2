"""`pipeline localize`: heads of regions and phrases are trained, and find phrases in a split."""

import time
from pathlib import Path
from typing import Literal

import click

from stages.console import CONSOLE, log_done, log_settings
from stages.experiment import layout_of

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--dataset", type=_PATH, help="[default: that of params.yaml]")
@click.option(
    "--method",
    required=True,
    help="Proposals that are ranked: their name in data/proposals/DATASET.",
)
@click.option(
    "--recipe", help="Of the regions' features.  [default: that of the experiment, at its size]"
)
@click.option("--proposals", type=_PATH, help="Folder.  [default: data/proposals/DATASET/METHOD]")
@click.option(
    "--regions",
    type=_PATH,
    help="Features of the proposals.  [default: data/features/DATASET/RECIPE@METHOD]",
)
@click.option(
    "--truth",
    type=_PATH,
    help="Features of the true boxes.  [default: data/features/DATASET/RECIPE@ground-truth]",
)
@click.option(
    "--phrases",
    type=_PATH,
    help="Features of the phrases.  [default: data/text/DATASET/, as the experiment names them]",
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Proposals of an image that count, the first ones.",
)
@click.option("--split", help="That is localized.  [default: test]")
@click.option("--train-split", help="[default: train]")
@click.option("--validation-split", help="[default: val, dev]")
@click.option(
    "--validation-images",
    type=click.IntRange(1),
    help="Choose the epoch by the first N images of the validation split.  [default: all]",
)
@click.option(
    "--size",
    type=click.Choice(["tiny", "small", "paper"]),
    default="small",
    show_default=True,
    help="Of the experiments' networks and trainings.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--max-epochs", type=click.IntRange(1), help="Train no longer than this.")
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
def localize(
    names: tuple[str, ...],
    dataset: Path | None,
    method: str,
    recipe: str | None,
    proposals: Path | None,
    regions: Path | None,
    truth: Path | None,
    phrases: Path | None,
    most: int,
    split: str | None,
    train_split: str | None,
    validation_split: str | None,
    validation_images: int | None,
    size: Literal["tiny", "small", "paper"],
    seed: int,
    max_epochs: int | None,
    device: str,
) -> None:
    """Rank the proposals of every image by how near they come to its phrases.

    Names are the experiments wang2016-phrases-*. Heads that are missing or out of date are
    trained, with the heads that they go on from; then data/localizations/DATASET/NAME.h5 is
    written, which `pipeline evaluate --protocol entities` measures. docs/regions.md has the
    commands before it.

    \b
    Example:
      pipeline localize wang2016-phrases-cca wang2016-phrases-d-mined \\
          --dataset data/entities --method edge-boxes --split dev
    """
    # Here, so that --help needs no torch.
    from pipeline.heads.experiments import resolve_experiment
    from pipeline.localization.localize import localize_experiment
    from pipeline.localization.train_localizer import Sources
    from stages.params import load_params

    layout = layout_of(dataset, load_params().dataset)
    started = time.monotonic()
    for name in names:
        experiment = resolve_experiment(name, size=size)
        base = experiment.goes_on_from and resolve_experiment(experiment.goes_on_from, size=size)
        of_recipe = recipe or experiment.images
        sources = Sources(
            dataset=layout.dataset,
            phrases=phrases or layout.text(experiment.captions.name),
            truth=truth or layout.regions(of_recipe, "ground-truth"),
            proposals=proposals or layout.proposals(method),
            regions=regions or layout.regions(of_recipe, method),
            most=most,
        )
        log_settings("localize", experiment=name, settings=experiment.settings, **vars(sources))
        localize_experiment(
            experiment,
            sources,
            heads=layout.head,
            out=layout.localization(name),
            base=base or None,
            split=split,
            train_split=train_split,
            validation_split=validation_split,
            validation_images=validation_images,
            seed=seed,
            max_epochs=max_epochs,
            device=device,
            monitor=CONSOLE,
        )
    log_done(f"localized: {', '.join(names)}; {time.monotonic() - started:.1f} s")
