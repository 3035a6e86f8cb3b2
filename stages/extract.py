"""`pipeline extract`: feature shards of images, clips or regions."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.workers.place import Place
from stages.additions import added_options, additions_to
from stages.command import PATH, Command, option
from stages.console import CONSOLE, OUTPUT
from stages.options import JSON, options_of


@click.command(cls=Command)
@option("--backbone", "Backbone whose default recipe is used; see `pipeline list backbones`.")
@option("--recipe", "Name of the recipe; see `pipeline list recipes`.")
@option("--dataset", "Prepared dataset.", PATH)
@option(
    "--images",
    "Plain images instead of --dataset: a folder, searched recursively; image files, of "
    "which more may follow; or a text file of paths, one per line, - for stdin. Ids are the paths.",
    PATH,
    metavar="FOLDER|IMAGE|LIST.txt|-",
)
@click.argument("more", nargs=-1, type=PATH, metavar="[IMAGE]...")
@option("--out", "Output folder of the shards.", OUTPUT, required=True)
@added_options("EXTRACT")
@options_of(Selection, without="leave_out_failed")
@options_of(Compute)
@options_of(Storage)
@options_of(Place)
@JSON
@click.pass_context
def extract(
    ctx: click.Context,
    backbone: str | None,
    recipe: str | None,
    dataset: Path | None,
    images: Path | None,
    more: tuple[Path, ...],
    out: Path,
    select: Selection,
    compute: Compute,
    storage: Storage,
    place: Place,
    as_json: bool,
    **options_of_additions: Any,
) -> None:
    """Extract features of a dataset's images or clips, of plain images, or of regions into shards.

    Missing, unreadable and refused images keep their row, with a status and a reason; the exit
    status is then 3. The same command resumes an interrupted run; on a finished output it
    recomputes only rows whose images have changed.

    With --workers or --scheduler, pending shards are distributed over worker processes; --threads
    and --readers then apply to each worker.

    \b
    Examples:
      pipeline extract --backbone efficientnet-lite0 --dataset data/scenes \\
          --out data/features/scenes/efficientnet-lite0-pool
      pipeline extract --backbone resnet152 --images photos --out features/photos
      pipeline extract --recipe efficientnet-lite0-pool --dataset data/msvd --frames every:0.5 \\
          --out data/features/msvd/efficientnet-lite0-pool
      pipeline extract --recipe mfcc-bow-1024 --dataset data/msrvtt \\
          --out data/features/msrvtt/mfcc-bow-1024
      pipeline extract --recipe efficientnet-lite0-roi-align --dataset data/scenes \\
          --regions data/proposals/scenes/grid \\
          --out data/features/scenes/efficientnet-lite0-roi-align@grid
    """
    from pipeline.images import extract as job_of_images
    from stages.feature_log import log_made

    if (name := recipe or backbone) is None or (recipe and backbone):
        raise click.UsageError("pass either --backbone NAME or --recipe NAME")
    if (dataset is None) == (images is None):
        raise click.UsageError(
            "pass either --dataset DIR, a prepared dataset, or --images FOLDER, a folder of images"
        )
    if more and images is None:
        raise click.UsageError(f"{more[0]} is not an option; image files follow --images")
    request = ctx.params | {"recipe": name, "compute": compute}
    jobs = [job for each in additions_to("EXTRACT") if (job := each.job(request)) is not None]
    # Pillow warns of images that are then refused, and of oddities in files that it reads.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    how: dict[str, Any] = {
        "select": select, "storage": storage, "compute": compute, "place": place,
        "monitor": CONSOLE,
    }  # fmt: skip
    if dataset is None:
        _require_images_alone(**options_of_additions, codebook=compute.codebook, split=select.split)
        files = _listed([path for path in (images, *more) if path])
        index = job_of_images.extract(files, out, recipe=name, **how)
    elif jobs:
        index = jobs[0](dataset, out, **how)
    else:
        index = job_of_images.extract(dataset, out, recipe=name, **how)
    log_made(ctx, out, index, as_json)


def _require_images_alone(**of_datasets: object) -> None:
    """Raise if an option that needs a prepared dataset is set."""
    if options := [name for name, v in of_datasets.items() if v not in (None, False, ())]:
        raise click.UsageError(
            f"--{options[0].replace('_', '-')} is of a prepared dataset (--dataset), and --images "
            "names plain image files"
        )


def _listed(paths: Iterable[Path]) -> list[Path]:
    """Return the files and folders named on the command line or in a list file."""
    from pipeline.datasets.plain_images import read_list

    images: list[Path] = []
    for path in paths:
        if path == Path("-"):
            images += read_list(Path("/dev/stdin"))
        elif path.suffix.lower() == ".txt":
            images += read_list(path)
        elif path.exists():
            images.append(path)
        else:
            raise click.UsageError(
                f"{path} does not exist; --images accepts a folder, image files, or a LIST.txt of "
                "paths"
            )
    return images
