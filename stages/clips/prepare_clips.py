"""`pipeline prepare clips`: a dataset of the user's own clips or sounds."""

from pathlib import Path
from typing import Any

import click

from stages.command import Command
from stages.prepare_options import (
    expect_option,
    log_dataset,
    name_option,
    out_option,
    path_option,
    table_options,
)


@click.command(cls=Command)
@path_option("--root", "Folder of the clips.")
@path_option("--captions", "File of the captions.")
@name_option
@table_options
@expect_option
@out_option
def clips(root: Path, captions: Path, name: str | None, out: Path, **options: Any) -> None:
    """Read your own clips or sounds from a table of paths and captions, like `prepare folder`.

    Rows with the same path are one clip, which may have any number of captions. Without splits,
    clips are split 80/10/10 into train, val and test by the hash of their id. No clip is opened;
    `pipeline extract` reports clips that cannot be decoded.

    \b
    Example:
      pipeline prepare clips --root CLIPS --captions captions.csv --out data/mine
    """
    name = name or out.resolve().name
    from pipeline.datasets.prepare import prepare

    manifest = prepare(captions, out, root=root, name=name, media="clips", **options)
    log_dataset(manifest, out)
