"""`pipeline embed`: trained heads turn the features of a split into embedding files."""

from pathlib import Path

import click

from pipeline.errors import WrongUsage
from stages.cluster import cluster_options
from stages.console import CONSOLE, OUTPUT, log_done, log_settings
from stages.experiment import experiment_options, layout_of


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
@cluster_options
def embed(
    experiment: str | None,
    head: Path | None,
    dataset: Path | None,
    split: str | None,
    images: Path | None,
    captions: Path | None,
    out: Path | None,
    leave_out_failed: bool,
    workers: int | None,
    scheduler: str | None,
    resources: dict[str, float],
    summary: Path | None,
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
    of_one = {"head": head, "images": images, "captions": captions, "out": out, "summary": summary}
    if experiment is None and (given := [name for name, path in of_one.items() if path]):
        raise WrongUsage(
            f"--{given[0]} belongs to one experiment, and none is named; give --experiment NAME"
        )
    plans = [
        experiment_of(params, name) for name in ([experiment] if experiment else params.experiments)
    ]
    split = split or params.splits.test
    from pipeline.heads.embed import embed as run

    for plan in plans:
        from_head = head or layout.head(plan.name)
        to_file = out or layout.embeddings(plan.name)
        log_settings(
            "embed",
            experiment=plan.name,
            head=from_head,
            dataset=layout.dataset,
            split=split,
            out=to_file,
            workers=workers,
            scheduler=scheduler,
        )
        embeddings = run(
            layout.dataset,
            to_file,
            head=from_head,
            images=images or layout.features(plan.embedded_images),
            captions=captions or layout.text(plan.captions.name),
            split=split,
            experiment=plan.name,
            leave_out_failed=leave_out_failed,
            workers=workers,
            scheduler=scheduler,
            resources=resources,
            summary=summary,
            monitor=CONSOLE,
        )
        log_done(
            f"{to_file}: {len(embeddings.image_ids)} images and {len(embeddings.caption_ids)} "
            f"captions in {embeddings.image_embeddings.shape[-1]} dimensions, similarity "
            f"{embeddings.similarity}"
        )
