"""`pipeline rerank`: captions chosen among generated candidates by a retrieval experiment."""

from pathlib import Path

import click

from stages.command import PATH, Command, option
from stages.console import CONSOLE, OUTPUT
from stages.experiment import DATASET, project_of, require_made
from stages.experiment_name import EXPERIMENT


@click.command(cls=Command)
@click.argument("files", type=PATH, nargs=-1, required=True, metavar="CAPTIONS.jsonl...")
@option(
    "--experiment",
    "Retrieval experiment whose head compares images and captions.",
    EXPERIMENT,
    required=True,
)
@option(
    "--weight",
    "Weight of the cosine, which is added to the score in the file.",
    click.FloatRange(0),
    default=4.0,
)
@option(
    "--consensus",
    "Weight of the mean CIDEr with captions of similar training images; 0: not computed.",
    click.FloatRange(0),
    default=0.0,
)
@option(
    "--neighbours",
    "Number of training images for the consensus.",
    click.IntRange(1),
    default=60,
)
@DATASET
@option(
    "--out",
    "File ending in .jsonl, or in .json for COCO's result format.  [default: "
    "data/captions/DATASET/NAME-by-EXPERIMENT.jsonl]",
    OUTPUT,
)
def rerank(
    files: tuple[Path, ...],
    experiment: str,
    weight: float,
    consensus: float,
    neighbours: int,
    dataset: Path | None,
    out: Path | None,
) -> None:
    """Rerank generated captions by their similarity to the image.

    The candidates are all captions of an image in the files of `pipeline caption`. Their score
    becomes that of the language model plus a weighted cosine in the experiment's space, and with
    --consensus a weighted similarity to the captions of the nearest training images.

    \b
    Examples:
      pipeline caption --split dev --experiment xu2015-soft-attention --beam 20 --top 20
      pipeline rerank data/captions/flickr8k/xu2015-soft-attention.jsonl --experiment ours-linear
    """
    from pipeline.language.captioning.caption_by_name import rerank as run
    from stages.plan import experiment_of

    params, layout = project_of(dataset)
    experiments = {experiment: experiment_of(params, experiment)}
    require_made(layout.head(experiment), experiment, layout)
    run(
        files, layout.dataset, out, experiment=experiment, weight=weight, consensus=consensus,
        neighbours=neighbours, experiments=experiments, root=layout.root, monitor=CONSOLE,
    )  # fmt: skip
