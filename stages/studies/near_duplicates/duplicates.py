"""`pipeline duplicates`: near-duplicate images within feature sets, splits, or between them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.store.errors import WrongUsage
from stages.command import FEATURES, PATH, Answer, flag, option
from stages.console import CONSOLE, FOUND, OUTPUT, printable
from stages.listing import print_table
from stages.options import JSON

if TYPE_CHECKING:
    from pipeline.studies.near_duplicates.find import Duplicate, Duplicates


@click.command(cls=Answer)
@click.argument("features", type=FEATURES)
@click.argument("others", type=FEATURES, required=False)
@option(
    "--threshold",
    "Minimum cosine of near-duplicates.  [default: calibrated for the recipe; --align: 0.5]",
    float,
)
@option(
    "--dataset",
    "Prepared dataset of FEATURES, or its folder of images, for splits and thumbnails; "
    "repeat it for OTHERS.",
    PATH,
    multiple=True,
)
@option(
    "--split",
    "Compare only these splits, comma-separated.  [default: all rows]",
    name="splits",
    metavar="NAMES",
)
@flag("--between", "Compare only images of different splits.")
@flag(
    "--approximate",
    "Find pairs with an approximate graph index, for millions of rows; some may be missed.",
)
@flag(
    "--align",
    "Confirm pairs by comparing pixels, which also finds crops; features propose the pairs.  "
    "Needs --dataset.",
)
@option("--page", "Write an HTML page with the images.", OUTPUT, metavar="FILE.html")
@flag("--fail", "Exit with status 3 if there are near-duplicates.")
@JSON
@click.pass_context
def duplicates(
    ctx: click.Context,
    features: Path,
    others: Path | None,
    dataset: tuple[Path, ...],
    splits: str | None,
    align: bool,
    page: Path | None,
    fail: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Find near-duplicate images by the cosine of their features, optionally also by their pixels.

    Compares the rows of FEATURES with each other, or only with those of OTHERS. Prints one line per
    image with a near-duplicate: group, score, id and split, and the nearest image.

    \b
    Examples:
      pipeline duplicates features/photos
      pipeline duplicates features/photos --dataset photos --align
      pipeline duplicates features/mine --dataset data/mine --between --page leaks.html
      pipeline duplicates features/mine --dataset data/mine --split train,test --between --fail
      pipeline duplicates features/mine features/theirs
    """
    from pipeline.datasets.plain_images import images_of
    from pipeline.studies.near_duplicates.find import duplicates as find

    if len(dataset) > (1 if others is None else 2):
        raise WrongUsage("pass --dataset once for each feature set")
    if page is not None and not dataset:
        raise WrongUsage("--page requires --dataset, which has the images")
    if align and len(dataset) < (1 if others is None else 2):
        raise WrongUsage("--align needs --dataset for each feature set, to read the images")
    folders = [features] if others is None else [features, others]
    manifests = [images_of(path, CONSOLE.log, follow_links=True) for path in dataset]
    result = find(
        features,
        others,
        dataset=manifests[0] if manifests and others is None else None,
        splits=[name for name in (splits or "").split(",") if name],
        images=manifests if align else (),
        monitor=CONSOLE,
        **options,
    )
    if page is not None:
        from pipeline.web.pages.near_duplicates import write_page

        write_page(result, page, dict(zip(folders, manifests, strict=False)))
        CONSOLE.log(f"{page}: the images of the groups")
    if as_json:
        click.echo(json.dumps(_values(result), indent=2))
    elif result.groups:
        print_table(_table(result))
    if fail and result.groups:
        ctx.exit(FOUND)


def _values(result: "Duplicates") -> dict[str, Any]:
    """Return the result as JSON values."""
    facts = ("threshold", "correlation", "compared", "failed", "recall")
    groups = [{"score": g.score, "images": [*map(_image, g.images)]} for g in result]
    return {**{name: getattr(result, name) for name in facts}, "groups": groups}


def _image(image: "Duplicate") -> dict[str, Any]:
    return {
        "id": image.id, "features": str(image.features), "split": image.split,
        "nearest": image.nearest, "score": image.score,
    }  # fmt: skip


def _table(result: "Duplicates") -> list[dict[str, str]]:
    """Return one row per image; columns with equal values in all rows are omitted."""
    several = len({image.features for image in result.images}) > 1
    splits = len({image.split for image in result.images}) > 1
    return [
        {
            "group": str(number),
            "score": f"{image.score:.4f}",
            "id": printable(image.id),
            **({"features": printable(str(image.features))} if several else {}),
            **({"split": image.split} if splits else {}),
            "nearest": printable(image.nearest),
        }
        for number, group in enumerate(result, 1)
        for image in group.images
    ]
