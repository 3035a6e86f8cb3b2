"""`pipeline embed`: embedding files of a split, computed by trained heads."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import Selection
from pipeline.store.objects.urls import shown
from pipeline.store.wording import counted
from pipeline.store.workers.place import Place
from stages.command import COUNT, PATH, Command, option
from stages.console import CONSOLE, OUTPUT_OR_URL, log_done
from stages.experiment import experiment_options, project_of, require_made
from stages.experiment_name import EXPERIMENT
from stages.options import options_of

if TYPE_CHECKING:
    from pipeline.retrieval.quantised.codes import Store


@click.command(cls=Command)
@option(
    "--experiment", "Experiment to embed.  [default: every experiment of params.yaml]", EXPERIMENT
)
@experiment_options
@option("--head", "Folder of the trained head.  [default: data/heads/DATASET/EXPERIMENT]", PATH)
@option(
    "--split",
    "Split to embed; several separated by commas, or all.  [default: as in params.yaml, else test, "
    "val or dev]",
)
@option(
    "--out",
    "Embedding file.  [default: data/embeddings/DATASET/EXPERIMENT.h5 for the evaluated split; for "
    "all splits data/search/DATASET/EXPERIMENT.h5, which `pipeline search` reads; for others "
    "EXPERIMENT.train.h5 or EXPERIMENT.train+val.h5 in that folder]",
    OUTPUT_OR_URL,
)
@option(
    "--store",
    "Dtype of the stored vectors; binary stores sign bits and int8. Ranges of int8 are calibrated "
    "on the training split.",
    click.Choice(("float32", "float16", "int8", "binary")),
    default="float32",
)
@option(
    "--dim", "Keep the first N dimensions, scaled to length 1.  [default: all]", COUNT, metavar="N"
)
@option(
    "--csls/--no-csls",
    "Correct cosines of hubs, rows near to everything, by the cosines of their nearest training "
    "rows (CSLS); adds two dimensions, and the similarity is dot.  [default: as in params.yaml, "
    "for the evaluated split]",
    default=None,
)
@options_of(Place)
def embed(
    experiment: str | None,
    head: Path | None,
    dataset: Path | None,
    split: str | None,
    images: Path | None,
    captions: Path | None,
    out: Path | None,
    leave_out_failed: bool,
    store: "Store",
    dim: int | None,
    csls: bool | None,
    place: Place,
) -> None:
    """Embed the images and captions of a split with the head of one experiment, or of all.

    With --head, a head trained on another dataset embeds this one, from features of the same
    recipe. Images without captions are embedded too.

    \b
    Examples:
      pipeline embed --experiment kiros2014-linear --split all
      pipeline embed --experiment kiros2014-linear --store int8 --dim 128 --out small.h5
      pipeline embed --experiment vsepp --csls
      pipeline embed
    """
    from stages.plan import experiment_of

    params, layout = project_of(dataset)
    of_one = {"head": head, "images": images, "captions": captions, "out": out,
              "summary": place.summary}  # fmt: skip
    if experiment is None and (options := [name for name, path in of_one.items() if path]):
        raise WrongUsage(
            f"--{options[0]} applies to one experiment, but none is named; pass --experiment NAME"
        )
    names = [experiment] if experiment else params.experiments
    plans = [experiment_of(params, name) for name in names]
    from pipeline.heads.embed import Stored, require_head_of
    from pipeline.heads.embed import embed as run

    tested = params.splits.test
    other = None if split is None or _is_tested(split, layout.dataset, tested) else split
    for plan in plans:
        from_head = head or layout.head(plan.name)
        to_file = out or (
            layout.searched(plan.name, other) if other else layout.embeddings(plan.name)
        )
        if head is None:
            require_made(from_head, plan.name, layout)
        require_head_of(from_head, plan.name)
        embeddings = run(
            layout.dataset,
            to_file,
            head=from_head,
            images=images or layout.features(plan.embedded_images),
            captions=captions or layout.text(plan.captions.name),
            select=Selection(split or tested, leave_out_failed=leave_out_failed),
            # Training rows have their own captions in the reference: corrected on request alone.
            stored=Stored(store, dim, plan.csls and not other if csls is None else csls),
            place=place,
            monitor=CONSOLE,
        )
        log_done(
            f"{shown(to_file)}: {counted(len(embeddings.image_ids), 'image')} and "
            f"{counted(len(embeddings.caption_ids), 'caption')} in "
            f"{counted(embeddings.image_embeddings.shape[-1], 'dimension')}, similarity "
            f"{embeddings.similarity}" + ("" if store == "float32" else f", stored as {store}")
        )


def _is_tested(split: str, dataset: Path, named: str | None) -> bool:
    """Return whether the tables are of this split, or the dataset has no split for them."""
    from pipeline.datasets.checks import DatasetError
    from pipeline.datasets.manifest import read_manifest
    from pipeline.datasets.splits import split_for

    try:
        return split == split_for("test", read_manifest(dataset), named)
    except DatasetError:
        return True
