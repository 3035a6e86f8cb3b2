"""`pipeline prepare entities` and `regions`: datasets of images with phrases and boxes."""

from pathlib import Path
from typing import Any

import click

from stages.command import Command
from stages.prepare_options import (
    expect_option,
    images_option,
    name_option,
    out_option,
    path_option,
    split_option,
    write_dataset,
)


@click.command(cls=Command)
@path_option("--root", "Folder, .tar.gz or .zip with Annotations/, Sentences/ and <split>.txt.")
@path_option("--images", "Folder of the images.")
@split_option(
    "--split",
    "NAME=FILE",
    Path,
    "Split and its list of ids; repeatable.  [default: <split>.txt]",
    "splits",
)
@click.option(
    "--boxes",
    "several",
    type=click.Choice(["union", "any"]),
    default="union",
    help="Several boxes of a chain: union, one box around all; any, each of them is correct.",
)
@click.option(
    "--scale-boxes",
    "scale",
    is_flag=True,
    help="Rescale the boxes of images whose size differs from their annotation; otherwise an "
    "error.",
)
@expect_option
@out_option
def entities(root: Path, images: Path, out: Path, **options: Any) -> None:
    """Read Flickr30k Entities: captions whose phrases have boxes.

    The image of an annotation is the one whose name begins with its number, in Flickr30k or
    Flickr8k.

    \b
    Example:
      pipeline prepare entities --root flickr30k_entities.tar.gz --images flickr30k-images \\
          --out data/entities
    """
    from pipeline.datasets.readers.entities import read_entities

    write_dataset(out, read_entities, root, images, **options)


@click.command(cls=Command)
@images_option
@path_option("--table", "CSV or JSONL file of images, phrases and boxes.")
@name_option
@expect_option
@out_option
def regions(root: Path, table: Path, name: str | None, out: Path, expect: dict[str, int]) -> None:
    """Read your own boxes from a CSV or JSONL file: image, phrase, x0, y0, x1, y1.

    Each line has one phrase with its box, in pixels of the original image, from 0, right and bottom
    exclusive; the columns type, chain and split are optional.

    \b
    Example:
      pipeline prepare regions --root IMAGES --table boxes.csv --out data/mine
    """
    from pipeline.datasets.region_table import read_regions

    name = name or out.resolve().name
    write_dataset(out, read_regions, root, table, name=name, expect=expect)
