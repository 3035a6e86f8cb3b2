"""`pipeline embed`: a trained head turns the features of a split into an embedding file."""

from pathlib import Path

import click

from stages.cluster import cluster_options
from stages.console import CONSOLE, OUTPUT, log_done, log_settings
from stages.experiment import experiment_options, layout_of


@click.command()
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
    experiment: str,
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
    """Embed the images and captions of a split with a trained head.

    \b
    Example:
      pipeline embed --experiment wang2016-nonlinear-bidirectional-structure
    """
    # Here, as the job below: what they import takes longer than --help should.
    from stages.params import load_params
    from stages.plan import experiment_of

    params = load_params()
    plan = experiment_of(params, experiment)
    layout = layout_of(dataset, params.dataset)
    head = head or layout.head(experiment)
    split = split or params.splits.test
    out = out or layout.embeddings(experiment)
    log_settings(
        "embed",
        experiment=experiment,
        head=head,
        dataset=layout.dataset,
        split=split,
        out=out,
        workers=workers,
        scheduler=scheduler,
    )
    from pipeline.heads.embed import embed as run

    embeddings = run(
        layout.dataset,
        out,
        head=head,
        images=images or layout.features(plan.images),
        captions=captions or layout.text(plan.captions.name),
        split=split,
        experiment=experiment,
        leave_out_failed=leave_out_failed,
        workers=workers,
        scheduler=scheduler,
        resources=resources,
        summary=summary,
        monitor=CONSOLE,
    )
    log_done(
        f"{out}: {len(embeddings.image_ids)} images and {len(embeddings.caption_ids)} captions in "
        f"{embeddings.image_embeddings.shape[-1]} dimensions, similarity {embeddings.similarity}"
    )
