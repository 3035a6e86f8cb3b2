"""`pipeline localize`: trains heads on regions and phrases, and localizes phrases of a split."""

import time
from pathlib import Path
from typing import Any

import click

from stages.command import COUNT, PATH, Command
from stages.console import CONSOLE, log_done
from stages.experiment import DATASET, LEAVE_OUT_FAILED, layout_of
from stages.training import SEEDS, SIZES, training_options


@click.command(cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@DATASET
@click.option(
    "--method",
    required=True,
    help="Proposals to rank: name of their folder in data/proposals/DATASET.",
)
@click.option(
    "--recipe",
    help="Recipe of the region features.  [default: that of the experiment, at its size]",
)
@click.option("--proposals", type=PATH, help="Folder.  [default: data/proposals/DATASET/METHOD]")
@click.option(
    "--region-features",
    "regions",
    type=PATH,
    help="Features of the proposals.  [default: data/features/DATASET/RECIPE@METHOD]",
)
@click.option(
    "--truth",
    type=PATH,
    help="Features of the true boxes.  [default: data/features/DATASET/RECIPE@ground-truth]",
)
@click.option(
    "--phrases",
    type=PATH,
    help="Features of the phrases.  [default: data/text/DATASET/, with the name in the experiment]",
)
@click.option(
    "--most",
    type=COUNT,
    default=100,
    help="Maximum number of proposals per image; the first ones are used.",
)
@click.option("--split", help="Split to localize.  [default: test]")
@training_options
@SEEDS
@LEAVE_OUT_FAILED
@click.option(
    "--validation-images",
    type=COUNT,
    help="Select the epoch on the first N images of the validation split.  [default: all]",
)
@click.option(
    "--size", type=SIZES, default="small", help="Size of the experiments' networks and trainings."
)
def localize(names: tuple[str, ...], dataset: Path | None, **options: Any) -> None:
    """Rank the proposals of every image by their similarity to its phrases.

    NAMES are the experiments wang2016-phrases-*. Computes what is missing or stale: the heads, the
    heads that they start from, and data/localizations/DATASET/NAME.h5, which `pipeline evaluate
    --protocol entities` evaluates. docs/regions.md has the commands to run before.

    \b
    Example:
      pipeline localize wang2016-phrases-cca wang2016-phrases-d-mined \\
          --dataset data/entities --method edge-boxes --split dev
    """
    from pipeline.regions.localization.localize_by_name import localize as localize_by_name
    from stages.params import Params, load_params
    from stages.plan import require_experiments

    require_experiments(Params(), names)
    layout = layout_of(dataset, load_params().dataset)
    started = time.monotonic()
    steps = localize_by_name(names, layout.dataset, **options, root=layout.root, monitor=CONSOLE)
    log_done(f"made: {', '.join(steps) or 'nothing'}; {time.monotonic() - started:.1f} s")
