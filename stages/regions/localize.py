"""`pipeline localize`: trains heads on regions and phrases, and localizes phrases of a split."""

from pathlib import Path
from typing import Any

import click

from stages.command import COUNT, PATH, Command, option
from stages.console import CONSOLE, elapsed, log_done
from stages.experiment import DATASET, LEAVE_OUT_FAILED, project_of
from stages.training import SEEDS, SIZES, training_options


@click.command(cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@DATASET
@option(
    "--method", "Proposals to rank: name of their folder in data/proposals/DATASET.", required=True
)
@option("--recipe", "Recipe of the region features.  [default: that of the experiment]")
@option("--proposals", "Folder.  [default: data/proposals/DATASET/METHOD]", PATH)
@option(
    "--region-features",
    "Features of the proposals.  [default: data/features/DATASET/RECIPE@METHOD]",
    PATH,
    name="regions",
)
@option(
    "--truth",
    "Features of the true boxes.  [default: data/features/DATASET/RECIPE@ground-truth]",
    PATH,
)
@option(
    "--phrases",
    "Features of the phrases.  [default: data/text/DATASET/NAME, as the experiment states]",
    PATH,
)
@option(
    "--most", "Maximum number of proposals per image; the first ones are used.", COUNT, default=100
)
@option("--split", "Split to localize.  [default: test]")
@training_options
@SEEDS
@LEAVE_OUT_FAILED
@option(
    "--validation-images",
    "Select the epoch on the first N images of the validation split.  [default: all]",
    COUNT,
)
@option("--size", "Size of the experiments' networks and trainings.", SIZES, default="small")
def localize(names: tuple[str, ...], dataset: Path | None, **options: Any) -> None:
    """Rank the proposals of every image by their similarity to its phrases.

    NAMES are the experiments wang2016-phrases-*. Computes what is missing or stale: the heads, the
    heads that they start from, and data/localizations/DATASET/NAME.h5, which `pipeline evaluate
    --protocol entities` evaluates. docs/regions.md lists the commands to run first.

    \b
    Example:
      pipeline localize wang2016-phrases-cca wang2016-phrases-d-mined \\
          --dataset data/entities --method edge-boxes --split dev
    """
    from pipeline.regions.localization.localize_by_name import localize as localize_by_name
    from stages.params import Params
    from stages.plan import require_experiments

    require_experiments(Params(), names)
    _, layout = project_of(dataset)
    steps = localize_by_name(names, layout.dataset, **options, root=layout.root, monitor=CONSOLE)
    log_done(f"made: {', '.join(steps) or 'nothing'}; {elapsed():.1f} s")
