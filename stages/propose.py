"""`pipeline propose`: boxes in which a method expects things, of every image of a dataset."""

import time
from pathlib import Path
from typing import Any

import click

from stages.console import CONSOLE, OUTPUT, SOME_ROWS_FAILED, log_done, log_settings

# Here, and not from pipeline.regions.propose, since `--help` needs none of what that imports.
_METHODS = ("edge-boxes", "selective-search", "bing", "grid", "boxes", "ground-truth")
_REASONS_SHOWN = 5


@click.command()
@click.option("--method", required=True, type=click.Choice(_METHODS), help="Who proposes.")
@click.option("--dataset", required=True, type=click.Path(path_type=Path), help="Prepared dataset.")
@click.option("--out", required=True, type=OUTPUT, help="Folder of the proposals.")
@click.option(
    "-n",
    "--number",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Most boxes of an image; ground-truth gives all.",
)
@click.option("--split", help="Only the images of this split.  [default: all]")
@click.option("--limit", type=click.IntRange(1), help="Only the first N images.  [default: all]")
@click.option(
    "--boxes",
    type=click.Path(path_type=Path),
    help="Of --method boxes: .tsv (bottom-up), .npz, .h5 or .json (COCO results).",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="Folder of BING's model; file of an edge model for edge-boxes.  [default: gradients]",
)
@click.option(
    "--threads", type=click.IntRange(1), help="Photos at once.  [default: one for each core]"
)
@click.pass_context
def propose(
    ctx: click.Context, method: str, dataset: Path, out: Path, number: int, **options: Any
) -> None:
    """Propose boxes on the images of a prepared dataset.

    edge-boxes, selective-search and bing need the extra `regions` (OpenCV). Where the dataset has
    phrases with boxes, the share of them that the proposals cover is logged. The same command
    again goes on where it stopped; photos that cannot be read keep their row, and the command then
    ends with exit status 3.

    \b
    Example:
      pipeline propose --method grid --dataset data/scenes --out data/proposals/scenes/grid
    """
    from pipeline.regions import propose as job
    from pipeline.shards.feature_set import FeatureSet

    given = {option: value for option, value in options.items() if value}
    log_settings("propose", method=method, dataset=dataset, out=out, number=number, **given)
    started = time.monotonic()
    index = job.propose(dataset, out, method=method, number=number, monitor=CONSOLE, **options)
    log_done(
        f"{index.rows} images, up to {index.header.row_shape[0]} boxes each, in {out}, recipe "
        f"{index.header.recipe_hash}, {time.monotonic() - started:.1f} s"
    )
    if index.failed_rows:
        for image_id, status, reason in FeatureSet(out).failures()[:_REASONS_SHOWN]:
            log_done(f"failed: {image_id}: {status}: {reason}")
        log_done(f"{index.failed_rows} of {index.rows} images failed; they have no proposals")
        ctx.exit(SOME_ROWS_FAILED)
