"""`pipeline prepare clips`, and published datasets of clips."""

import time
from pathlib import Path
from typing import Any

import click

from stages.command import PATH, Command
from stages.prepare_options import (
    captions_option,
    expect_option,
    log_dataset,
    name_option,
    out_option,
    path_option,
    table_options,
    write_dataset,
)

clips_option = path_option("--root", "Folder of the clips.")
subset_option = click.option(
    "--subset", is_flag=True, help="Use the clips that exist; missing ones are counted."
)


@click.command(cls=Command)
@clips_option
@captions_option
@name_option
@table_options
@expect_option
@out_option
def clips(root: Path, captions: Path, name: str | None, out: Path, **options: Any) -> None:
    """Read your own clips or sounds from a table of paths and captions, as `prepare folder` does.

    Rows of the same path are one clip, which may have any number of captions. Without splits, clips
    are split 80/10/10 into train, val and test by the hash of their id. No clip is opened;
    `pipeline extract` reports clips that cannot be decoded.

    \b
    Example:
      pipeline prepare clips --root CLIPS --captions captions.csv --out data/mine
    """
    name = name or out.resolve().name
    from pipeline.datasets.prepare import prepare

    started = time.monotonic()
    manifest = prepare(captions, out, root=root, name=name, media="clips", **options)
    log_dataset(manifest, out, started)


@click.command(cls=Command)
@clips_option
@path_option(
    "--captions", "AllVideoDescriptions.txt, or a table with the columns file, id, caption, split."
)
@path_option("--mapping", "youtube_mapping.txt, for AllVideoDescriptions.txt.", required=False)
@subset_option
@expect_option
@out_option
def msvd(root: Path, captions: Path, out: Path, **options: Any) -> None:
    """Read MSVD: all its sentences, and the splits of 1,200, 100 and 670 clips.

    \b
    Example:
      pipeline prepare msvd --root YouTubeClips --captions AllVideoDescriptions.txt \\
          --mapping youtube_mapping.txt --out data/msvd
    """
    from pipeline.datasets.readers.msvd import read_msvd

    write_dataset(out, read_msvd, root, captions, **options)


@click.command(cls=Command)
@clips_option
@click.option(
    "--captions",
    required=True,
    multiple=True,
    type=PATH,
    help="JSON file of the corpus; repeatable.",
)
@subset_option
@expect_option
@out_option
def msrvtt(root: Path, captions: tuple[Path, ...], out: Path, **options: Any) -> None:
    """Read MSR-VTT: all sentences, and the splits of 6,513, 497 and 2,990 clips.

    \b
    Example:
      pipeline prepare msrvtt --root videos --captions train_val_videodatainfo.json \\
          --captions test_videodatainfo.json --out data/msrvtt
    """
    from pipeline.datasets.readers.msrvtt import read_msrvtt

    write_dataset(out, read_msrvtt, root, captions, **options)


@click.command("trecvid-vtt", cls=Command)
@clips_option
@path_option("--captions", "Folder of vines.textDescription.*.testingSet and vtt.gt.")
@subset_option
@expect_option
@out_option
def trecvid_vtt(root: Path, captions: Path, out: Path, **options: Any) -> None:
    """Read the testing set of TRECVID 2016 Video to Text: 1,915 clips with one sentence per set.

    \b
    Example:
      pipeline prepare trecvid-vtt --root vines --captions vtt --out data/trecvid-vtt
    """
    from pipeline.datasets.readers.trecvid_vtt import read_trecvid_vtt

    write_dataset(out, read_trecvid_vtt, root, captions, **options)
