"""`pipeline prepare clips` and the datasets of clips of the field."""

import time
from pathlib import Path

import click

from stages.console import log_settings
from stages.prepare_options import (
    captions_option,
    expect_option,
    out_option,
    path_option,
    shown,
    write_dataset,
)

clips_option = path_option("--root", "Folder of the clips.")


@click.command()
@clips_option
@captions_option
@click.option("--name", help="Name of the dataset.  [default: that of the folder OUT]")
@expect_option
@out_option
def clips(root: Path, captions: Path, name: str | None, expect: dict[str, int], out: Path) -> None:
    """Read your own clips or sounds from a CSV or JSONL file: path, caption, optional split and id.

    One line is one caption; lines of the same path are one clip, which may have any number of
    captions. Without splits, clips are split 80/10/10 into train, val and test by the hash of
    their id. No clip is opened: whether it can be decoded is found out by `extract`.

    \b
    Example:
      pipeline prepare clips --root CLIPS --captions captions.csv --out data/mine
    """
    name = name or out.resolve().name
    from pipeline.datasets.folder import read_folder

    log_settings(
        "prepare clips", root=root, captions=captions, name=name, expect=shown(expect), out=out
    )
    started = time.monotonic()
    manifest = read_folder(root, captions, name=name, expect=expect, media="clips")
    write_dataset(manifest, out, started)
