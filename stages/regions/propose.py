"""`pipeline propose`: boxes of likely objects in every image of a dataset."""

from pathlib import Path
from typing import Any

import click

from pipeline.regions import METHODS
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.workers.place import Place
from stages.command import COUNT, PATH, Command, option
from stages.console import CONSOLE, OUTPUT_OR_URL
from stages.experiment import REQUIRED_DATASET
from stages.options import JSON, options_of


@click.command(cls=Command)
@option("--method", "Proposal method.", click.Choice(METHODS), required=True)
@REQUIRED_DATASET
@option("--out", "Output folder of the proposals, or its URL.", OUTPUT_OR_URL, required=True)
@click.option(
    "-n",
    "--number",
    type=COUNT,
    default=100,
    help="Maximum number of boxes per image; ground-truth returns all.",
)
@option(
    "--boxes",
    "Box file of --method boxes: .tsv (bottom-up), .npz, .h5 or .json (COCO results).",
    PATH,
)
@option(
    "--model",
    "Folder of BING's model, or edge model file for edge-boxes.  [default: for edge-boxes, colour "
    "gradients]",
    PATH,
)
@options_of(Selection, without="leave_out_failed")
@options_of(Compute, "threads")
@options_of(Storage, without="dtype")
@options_of(Place)
@JSON
@click.pass_context
def propose(
    ctx: click.Context,
    method: str,
    dataset: Path,
    out: Path,
    number: int,
    boxes: Path | None,
    model: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Propose boxes on the images of a prepared dataset.

    edge-boxes, selective-search and bing need the extra `regions` (OpenCV). If the dataset has
    phrases with boxes, the recall of the proposals is logged. The same command resumes an
    interrupted run, and recomputes changed images. Unreadable images keep their row, and the exit
    status is then 3.

    \b
    Example:
      pipeline propose --method grid --dataset data/scenes --out data/proposals/scenes/grid
    """
    from pipeline.regions import propose as job
    from pipeline.regions.proposal_source import Proposer
    from stages.feature_log import log_made

    proposer = Proposer(method, number, boxes, model)
    index = job.propose(dataset, out, proposer=proposer, **options, monitor=CONSOLE)
    log_made(ctx, out, index, as_json)
