"""`pipeline prepare`: datasets of captioned images, read from a source or drawn."""

import time
from pathlib import Path
from typing import Any

import click

from pipeline.datasets.checks import check_split
from pipeline.experiments.layout import Layout
from stages.additions import additions_to
from stages.command import COUNT, PATH, Group
from stages.prepare_options import (
    Assignment,
    captions_option,
    count,
    expect_option,
    images_option,
    log_dataset,
    name_option,
    out_option,
    path_option,
    split_option,
    table_options,
    write_dataset,
)


@click.group(cls=Group)
def prepare() -> None:
    """Prepare a dataset of captioned images or clips, read from a source or drawn.

    A dataset is a folder with manifest.jsonl (ids, files, splits, captions) and dataset.json. The
    files of existing images and clips are not copied.

    \b
    Example:
      pipeline prepare scenes --num-images 600 --seed 0 --out data/scenes
    """


@prepare.command()
@path_option("--root", "Folder with images/, annotations/*token* and splits/<split>.txt.")
@path_option("--images", "Folder of the images.  [default: ROOT/images]", required=False)
@path_option("--captions", "Token file.  [default: ROOT/annotations/*token*]", required=False)
@split_option(
    "--split",
    "NAME=FILE",
    Path,
    "Split and its list; repeatable.  [default: ROOT/splits/*.txt]",
    "splits",
)
@click.option(
    "--captions-per-image",
    type=COUNT,
    default=5,
    help="Number of captions that every image of a split must have.",
)
@expect_option
@out_option
def flickr8k(root: Path, out: Path, **options: Any) -> None:
    """Read Flickr8k's token file and split lists (Flickr30K's token file has the same form).

    \b
    Examples:
      pipeline prepare flickr8k --root DIR --out data/flickr8k
      pipeline prepare flickr8k --root DIR --images DIR/Flicker8k_Dataset \\
          --captions DIR/Flickr8k.token.txt --split train=DIR/Flickr_8k.trainImages.txt \\
          --split dev=DIR/Flickr_8k.devImages.txt --expect train=6000 --out data/flickr8k
    """
    from pipeline.datasets.readers.flickr8k import read_flickr8k

    write_dataset(out, read_flickr8k, root, **options)


@prepare.command()
@images_option
@click.option(
    "--captions",
    required=True,
    multiple=True,
    type=Assignment("[SPLIT=]FILE", Path, split_needed=False),
    help="Caption file and its split; repeatable.  [default split: that of --split]",
)
@click.option("--split", default="val", help="Split of caption files without a stated split.")
@split_option(
    "--folder",
    "SPLIT=FOLDER",
    str,
    "Folder of a split's images below ROOT.  [default: ROOT]",
    "folders",
)
@click.option(
    "--boxes",
    multiple=True,
    type=PATH,
    help="Instance file, which adds phrases with boxes; repeatable.",
)
@expect_option
@out_option
def coco(
    root: Path, captions: tuple[tuple[str | None, Path], ...], split: str, out: Path, **options: Any
) -> None:
    """Read captions, and optionally boxes, in MS-COCO's annotation format.

    \b
    Examples:
      pipeline prepare coco --root IMAGES --captions captions.json --out data/coco
      pipeline prepare coco --root DIR --out data/coco \\
          --captions train=captions_train2017.json --folder train=train2017 \\
          --captions val=captions_val2017.json --folder val=val2017
    """
    if error := check_split(split):
        raise click.BadParameter(f"{split!r} {error}", param_hint="--split")
    files = [(of_file or split, path) for of_file, path in captions]
    from pipeline.datasets.readers.coco import read_coco

    write_dataset(out, read_coco, root, files, **options)


@prepare.command()
@images_option
@captions_option
@click.option(
    "--restval",
    type=click.Choice(["train", "keep", "leave-out"]),
    default="train",
    help="COCO's restval images: merge them into train, keep them as a split, or leave them out.",
)
@split_option(
    "--expect",
    "SPLIT=COUNT",
    count,
    "Required number of images of a split; repeatable.  [default: the known counts of coco, "
    "flickr30k and flickr8k]",
)
@out_option
def karpathy(root: Path, captions: Path, out: Path, **options: Any) -> None:
    """Read one of Karpathy's split files, dataset_<name>.json.

    \b
    Example:
      pipeline prepare karpathy --root IMAGES --captions dataset_flickr30k.json \\
          --out data/flickr30k
    """
    from pipeline.datasets.readers.karpathy import read_karpathy

    write_dataset(out, read_karpathy, root, captions, **options)


@prepare.command()
@path_option(
    "--root", "Folder of the images.  [default: the folder of the captions]", required=False
)
@path_option(
    "--captions",
    "Table, tar files, or a folder with either.  [default: metadata of ROOT; otherwise no "
    "captions]",
    required=False,
)
@name_option
@table_options
@expect_option
@out_option
def folder(
    root: Path | None, captions: Path | None, name: str | None, out: Path, **options: Any
) -> None:
    """Read your own images, with a table of paths and captions or without one.

    \b
    --captions  .csv .tsv .txt   separated by , ; tab or |, with a header
                .jsonl .json     one object per line; a list of objects; lists by column
                .parquet         also with images inside, as Hugging Face stores them
                .tar             WebDataset shards, shard-{000..009}.tar; unpacked to OUT/images
                a folder         with metadata.csv, .jsonl or .parquet, or with tar files
    Columns     path (image, file_name, filename, ...), caption (text, sentence, ..., or several:
                caption1, caption2, ...), optionally split and id

    Rows of the same path are one image. Without --captions and without metadata, all image files
    below ROOT are read, without captions. Without splits, images are split 80/10/10 into train, val
    and test by the hash of their id.

    \b
    Examples:
      pipeline prepare folder --root IMAGES --captions captions.csv --out data/mine
      pipeline prepare folder --root IMAGES --out data/mine
      pipeline prepare folder --captions 'shards/{000..009}.tar' --out data/mine
    """
    if root is None and captions is None:
        raise click.UsageError("pass --root, --captions, or both")
    name = name or out.resolve().name
    from pipeline.datasets.prepare import prepare as prepare_dataset

    started = time.monotonic()
    manifest = prepare_dataset(captions, out, root=root, name=name, **options)
    log_dataset(manifest, out, started)


for command in additions_to("PREPARE"):
    prepare.add_command(command)


@prepare.command("dataset")
@click.argument("name")
@click.option("--out", type=PATH, help="Folder of the dataset.  [default: data/NAME]")
def of_params(name: str, out: Path | None) -> None:
    """Prepare a dataset as `datasets` of params.yaml specifies.

    \b
    Example:
      pipeline prepare dataset scenes
    """
    from stages.params import PARAMS_FILE, load_params

    plan = load_params().dataset_named(name)
    where = str(out or Layout.of(name).dataset)
    prepare.commands[plan.kind].main(
        [*plan.arguments, "--out", where],
        prog_name=f"pipeline prepare {plan.kind} (datasets.{name} of {PARAMS_FILE})",
        standalone_mode=False,
    )
