"""`pipeline localize`: trains heads on regions and phrases, and localizes phrases of a split."""

import time
from pathlib import Path
from typing import Literal

import click

from pipeline.heads.training.training_options import TrainingOptions
from stages.command import Command
from stages.console import CONSOLE, log_done
from stages.experiment import LEAVE_OUT_FAILED, layout_of
from stages.training import training_options

_PATH = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--dataset", type=_PATH, help="Prepared dataset.  [default: as in params.yaml]")
@click.option(
    "--method",
    required=True,
    help="Proposals to rank: name of their folder in data/proposals/DATASET.",
)
@click.option(
    "--recipe",
    help="Recipe of the region features.  [default: that of the experiment, at its size]",
)
@click.option("--proposals", type=_PATH, help="Folder.  [default: data/proposals/DATASET/METHOD]")
@click.option(
    "--region-features",
    "regions",
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
    help="Features of the phrases.  [default: data/text/DATASET/, with the name in the experiment]",
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Maximum number of proposals per image; the first ones are used.",
)
@click.option("--split", help="Split to localize.  [default: test]")
@training_options
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of trainings, with the seeds from --seed on: NAME, NAME-seed1, ...",
)
@LEAVE_OUT_FAILED
@click.option(
    "--validation-images",
    type=click.IntRange(1),
    help="Select the epoch on the first N images of the validation split.  [default: all]",
)
@click.option(
    "--size",
    type=click.Choice(["tiny", "small", "paper"]),
    default="small",
    show_default=True,
    help="Size of the experiments' networks and trainings.",
)
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
    seeds: int,
    validation_images: int | None,
    size: Literal["tiny", "small", "paper"],
    training: TrainingOptions,
) -> None:
    """Rank the proposals of every image by their similarity to its phrases.

    NAMES are the experiments wang2016-phrases-*. Computes what is missing or stale: the heads, the
    heads that they start from, and data/localizations/DATASET/NAME.h5, which `pipeline evaluate
    --protocol entities` evaluates. docs/regions.md has the commands to run before.

    \b
    Example:
      pipeline localize wang2016-phrases-cca wang2016-phrases-d-mined \\
          --dataset data/entities --method edge-boxes --split dev
    """
    # Here, so that --help needs no torch.
    from pipeline.regions.localization.localize_by_name import localize as localize_by_name
    from stages.params import Params, load_params
    from stages.plan import require_experiments

    require_experiments(Params(), names)
    layout = layout_of(dataset, load_params().dataset)
    started = time.monotonic()
    made = localize_by_name(
        names,
        layout.dataset,
        method=method,
        recipe=recipe,
        proposals=proposals,
        regions=regions,
        truth=truth,
        phrases=phrases,
        most=most,
        split=split,
        seeds=seeds,
        validation_images=validation_images,
        root=layout.root,
        size=size,
        training=training,
        monitor=CONSOLE,
    )
    log_done(f"made: {', '.join(made) or 'nothing'}; {time.monotonic() - started:.1f} s")
