"""`pipeline extract`: feature shards of images, clips or regions."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.workers.place import Place
from stages.additions import added_options, additions_to
from stages.command import IMAGES, PATH, Command, flag, option
from stages.console import CONSOLE, OUTPUT_OR_URL
from stages.options import JSON, options_of

_POOLS = {"mean": "pool"}  # words of recipes for those of the option


@click.command(cls=Command)
@option("--backbone", "Backbone whose default recipe is used; see `pipeline list backbones`.")
@option("--recipe", "Name of the recipe; see `pipeline list recipes`.")
@option(
    "--layer",
    "Layer of the network to read, as `pipeline list layers RECIPE` names it. Repeatable: one pass "
    "computes all layers, each into OUT/LAYER.",
    multiple=True,
)
@option(
    "--pool",
    "Pooling or part of the layer's output.  [default: the recipe's]",
    click.Choice(["grid", "mean", "max", "tokens", "class", "distillation", "registers"]),
)
@option(
    "--resize",
    "Resize the shorter side, or with squash both sides, to PIXELS.  [default: the recipe's]",
    metavar="[squash:]PIXELS[:bicubic]",
)
@option("--crop", "Crop of the resized image.", metavar="[ten:]PIXELS|none|flip")
@option("--mean", "Mean of each channel, on a scale of 0 to 1.", float, nargs=3)
@option("--std", "Standard deviation of each channel.", float, nargs=3)
@option("--channels", "Order of the channels.", click.Choice(["RGB", "BGR"]))
@option("--dataset", "Prepared dataset.", PATH)
@option(
    "--images",
    "Plain images instead of --dataset: a folder, searched recursively; one or more image files; a "
    "text file of paths, one per line, or - for stdin; or tar files, such as "
    "'shard-{000..009}.tar'. Any of them may be a URL. Ids are the paths, as if each tar file were "
    "a folder.",
    IMAGES,
    metavar="FOLDER|IMAGE|LIST.txt|TAR|URL|-",
)
@flag("--follow-links", "Follow links out of --images and its repository.")
@click.argument("more", nargs=-1, type=IMAGES, metavar="[IMAGE]...")
@option("--out", "Output folder of the shards, or its URL.", OUTPUT_OR_URL, required=True)
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
    layer: tuple[str, ...],
    pool: str | None,
    resize: str | None,
    crop: str | None,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    channels: str | None,
    dataset: Path | None,
    images: Path | None,
    follow_links: bool,
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
      pipeline extract --backbone resnet152 --images s3://mine/photos --out features/photos
      pipeline extract --recipe torchvision:resnet50 --layer layer2 --layer layer3 --pool mean \\
          --images photos --out features/layers
      pipeline extract --recipe efficientnet-lite0-pool --dataset data/msvd --frames every:0.5 \\
          --out data/features/msvd/efficientnet-lite0-pool
      pipeline extract --recipe mfcc-bow-1024 --dataset data/msrvtt \\
          --out data/features/msrvtt/mfcc-bow-1024
      pipeline extract --recipe efficientnet-lite0-roi-align --dataset data/scenes \\
          --regions data/proposals/scenes/grid \\
          --out data/features/scenes/efficientnet-lite0-roi-align@grid
    """
    from pipeline.datasets.plain_images import plain_images
    from pipeline.images import extract as job_of_images
    from stages.feature_log import log_all_made, log_made

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
    changes = {"resize": resize, "crop": crop, "mean": mean, "std": std, "channels": channels}
    if dataset is not None and jobs:
        _require_no_layer(layer=layer, pool=pool, **changes)
        log_made(ctx, out, jobs[0](dataset, out, **how), as_json)
        return
    source: Any = dataset
    if dataset is None:
        _require_images_alone(**options_of_additions, codebook=compute.codebook, split=select.split)
        source = _listed([path for path in (images, *more) if path])
        if follow_links:
            source = plain_images(source, CONSOLE.log, follow_links)
    recipes = [_recipe(name, each, pool, changes) for each in layer or ("",)]
    if len(recipes) == 1:
        log_made(ctx, out, job_of_images.extract(source, out, recipe=recipes[0], **how), as_json)
        return
    made = job_of_images.extract_layers(source, out, recipes=recipes, **how)
    log_all_made(ctx, {out / folder: index for folder, index in made.items()}, as_json)


def _recipe(name: str, layer: str, pool: str | None, changes: dict[str, Any]) -> Any:
    """Return the recipe, or its name, of the options of a layer and of preprocessing."""
    name += f"-{_POOLS.get(pool, pool)}" if pool else ""
    name += f"@{layer}" if layer else ""
    given = {option: value for option, value in changes.items() if value}
    if not given:
        return name
    from pipeline.images.backbones.known_backbones import backbone_named
    from pipeline.images.layer_recipes import preprocessed
    from pipeline.images.recipes import Preprocessing, resolve_recipe

    recipe = resolve_recipe(name)
    way = Preprocessing.spelled(recipe, **given)
    return preprocessed(recipe, way, backbone_named(recipe.backbone))


def _require_no_layer(**of_images: object) -> None:
    if options := [name for name, value in of_images.items() if value]:
        raise click.UsageError(
            f"--{options[0]} is for whole images; clips and regions have the layers of recipes"
        )


def _require_images_alone(**of_datasets: object) -> None:
    """Raise if an option that needs a prepared dataset is set."""
    if options := [name for name, v in of_datasets.items() if v not in (None, False, ())]:
        raise click.UsageError(
            f"--{options[0].replace('_', '-')} requires a prepared dataset (--dataset), but "
            "--images names plain image files"
        )


def _listed(paths: Iterable[Path]) -> list[Path]:
    """Return the files and folders named on the command line or in a list file."""
    from pipeline.datasets.plain_images import read_list
    from pipeline.datasets.readers.tables.tar_shards import expand_braces
    from pipeline.store.objects.urls import url_of

    images: list[Path] = []
    for path in paths:
        if path == Path("-"):
            images += read_list(Path("/dev/stdin"))
        elif path.suffix.lower() == ".txt":
            images += read_list(path)
        elif url_of(path) or all(file.exists() for file in expand_braces(path)):
            images += expand_braces(path)
        else:
            raise click.UsageError(
                f"{path} does not exist; --images accepts a folder, image files, tar files such as "
                "shard-{000..009}.tar, or a LIST.txt of paths"
            )
    return images
