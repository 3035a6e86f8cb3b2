"""`pipeline embed`: trained heads turn the features of a split into embedding files."""

from pathlib import Path

import click

from pipeline.cluster.place import Place
from pipeline.errors import WrongUsage
from pipeline.jobs.options import Selection
from stages.console import CONSOLE, OUTPUT, log_done, log_settings
from stages.experiment import experiment_options, layout_of
from stages.options import place_options


@click.command()
@click.option("--experiment", help="[default: every experiment of params.yaml]")
@experiment_options
@click.option(
    "--head",
    type=click.Path(path_type=Path),
    help="Folder of the trained head.  [default: data/heads/DATASET/EXPERIMENT]",
)
@click.option("--split", help="Split to embed.  [default: that of params.yaml, or test, val, dev]")
@click.option(
    "--out", type=OUTPUT, help="Embedding file.  [default: data/embeddings/DATASET/EXPERIMENT.h5]"
)
@place_options
def embed(
    experiment: str | None,
    head: Path | None,
    dataset: Path | None,
    split: str | None,
    images: Path | None,
    captions: Path | None,
    out: Path | None,
    leave_out_failed: bool,
    place: Place,
) -> None:
    """Embed the images and captions of a split with the head of an experiment, or of each.

    \b
    Examples:
      pipeline embed --experiment wang2016-nonlinear-bidirectional-structure
      pipeline embed
    """
    # Here, as the job below: what they import takes longer than --help should.
    from stages.params import load_params
    from stages.plan import experiment_of

    params = load_params()
    layout = layout_of(dataset, params.dataset)
    of_one = {
        "head": head,
        "images": images,
        "captions": captions,
        "out": out,
        "summary": place.summary,
    }
    if experiment is None and (given := [name for name, path in of_one.items() if path]):
        raise WrongUsage(
            f"--{given[0]} belongs to one experiment, and none is named; give --experiment NAME"
        )
    plans = [
        experiment_of(params, name) for name in ([experiment] if experiment else params.experiments)
    ]
    split = split or params.splits.test
    from pipeline.heads.embed import embed as run
    from pipeline.heads.embed import require_head_of

    for plan in plans:
        from_head = head or layout.head(plan.name)
        to_file = out or layout.embeddings(plan.name)
        log_settings("embed", experiment=plan.name, head=from_head, split=split, out=to_file)
        require_head_of(from_head, plan.name)
        embeddings = run(
            layout.dataset,
            to_file,
            head=from_head,
            images=images or layout.features(plan.embedded_images),
            captions=captions or layout.text(plan.captions.name),
            select=Selection(split, leave_out_failed=leave_out_failed),
            place=place,
            monitor=CONSOLE,
        )
        log_done(
            f"{to_file}: {len(embeddings.image_ids)} images and {len(embeddings.caption_ids)} "
            f"captions in {embeddings.image_embeddings.shape[-1]} dimensions, similarity "
            f"{embeddings.similarity}"
        )
