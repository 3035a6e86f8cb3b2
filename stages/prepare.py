"""`pipeline prepare`: datasets of captioned images, read from a source or drawn."""

from pathlib import Path
from typing import Any

import click

from pipeline.datasets.readers import READERS
from pipeline.experiments.layout import Layout
from stages.additions import additions_to
from stages.command import IMAGES, Group, flag, option
from stages.console import OUTPUT
from stages.prepare_options import (
    expect_option,
    log_dataset,
    name_option,
    out_option,
    path_option,
    table_options,
)
from stages.prepare_readers import reader_command


class _Prepare(Group):
    """The commands of this module, and one of each reader, which is imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *READERS})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command = super().get_command(ctx, name)
        return reader_command(name) if command is None and name in READERS else command


@click.group(cls=_Prepare)
def prepare() -> None:
    """Read captioned images or clips into a dataset, or draw them.

    A dataset is a folder with manifest.jsonl (ids, files, splits, captions) and dataset.json. The
    files of existing images and clips are not copied.

    \b
    Example:
      pipeline prepare scenes --num-images 600 --seed 0 --out data/scenes
    """


@prepare.command()
@path_option(
    "--root",
    "Folder of the images, or its URL.  [default: the folder of the captions]",
    required=False,
    kind=IMAGES,
)
@path_option(
    "--captions",
    "Table, tar files, or a folder with either, or a URL.  [default: metadata of ROOT; otherwise "
    "no captions]",
    required=False,
    kind=IMAGES,
)
@name_option
@table_options
@flag("--unpack", "Write images of tar and Parquet files to OUT/images.  [default: read in place]")
@expect_option
@out_option
def folder(
    root: Path | None, captions: Path | None, name: str | None, out: Path, **options: Any
) -> None:
    """Read your own images, with or without a table of paths and captions.

    \b
    --captions  .csv .tsv .txt   separated by , ; tab or |, with a header
                .jsonl .json     one object per line; a list of objects; lists by column
                .parquet         also with images inside, as Hugging Face stores them
                .tar             WebDataset shards, shard-{000..009}.tar
                a folder         with metadata.csv, .jsonl or .parquet, or with tar files
    Columns     path (image, file_name, filename, ...), caption (text, sentence, ..., or several:
                caption1, caption2, ...), optionally split and id

    Images in .parquet and .tar files, and at URLs such as s3://BUCKET/FOLDER, are not copied; all
    commands read them in place. Rows with the same path are one image. Without --captions and
    without metadata, all image files below ROOT are read, without captions. Without splits, images
    are split 80/10/10 into train, val and test by the hash of their id.

    \b
    Examples:
      pipeline prepare folder --root IMAGES --captions captions.csv --out data/mine
      pipeline prepare folder --root IMAGES --out data/mine
      pipeline prepare folder --captions 'shards/{000..009}.tar' --out data/mine
      pipeline prepare folder --captions 's3://mine/{000..009}.tar' --out data/mine
    """
    if root is None and captions is None:
        raise click.UsageError("pass --root, --captions, or both")
    name = name or out.resolve().name
    from pipeline.datasets.prepare import prepare as prepare_dataset

    manifest = prepare_dataset(captions, out, root=root, name=name, **options)
    log_dataset(manifest, out)


for command in additions_to("PREPARE"):
    prepare.add_command(command)


@prepare.command("dataset")
@click.argument("name")
@option("--out", "Folder of the dataset.  [default: data/NAME]", OUTPUT)
@click.pass_context
def of_params(ctx: click.Context, name: str, out: Path | None) -> None:
    """Prepare a dataset that params.yaml defines.

    \b
    Example:
      pipeline prepare dataset scenes
    """
    from stages.params import PARAMS_FILE, load_params

    plan = load_params().dataset_named(name)
    where = str(out or Layout.of(name).dataset)
    command = prepare.get_command(ctx, plan.kind)
    assert command is not None  # by the schema of `Dataset`
    command.main(
        [*plan.arguments, "--out", where],
        prog_name=f"pipeline prepare {plan.kind} (datasets.{name} of {PARAMS_FILE})",
        standalone_mode=False,
    )
