"""`pipeline prepare scenes` and `moving-scenes`: datasets that the project draws."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from stages.command import Command, option
from stages.console import progress_of
from stages.prepare_options import out_option, write_dataset

if TYPE_CHECKING:
    from pipeline.datasets.manifest import Manifest

SEED = option("--seed", "Seed of all random choices.", click.IntRange(0), default=0)


@click.command(cls=Command)
@option("--num-images", "Number of images.", click.IntRange(3, 100_000), default=600)
@SEED
@out_option
def scenes(num_images: int, seed: int, out: Path) -> None:
    """Draw scenes of shapes with five captions each.

    Of every six images, four are in train, one in val and one in test. Image i depends only on
    the seed and i.

    \b
    Example:
      pipeline prepare scenes --num-images 600 --seed 0 --out data/scenes
    """
    from pipeline.studies.scenes.draw_scenes import draw_scenes

    def draw() -> "Manifest":  # the bar is closed before the dataset is logged
        with progress_of("scenes", "image") as progress:
            return draw_scenes(out, num_images, seed, progress)

    write_dataset(out, draw)


@click.command("moving-scenes", cls=Command)
@option(
    "--clips", "Number of clips; even.", click.IntRange(6, 100_000), name="num_clips", default=600
)
@SEED
@option(
    "--format",
    "File format; gif needs no encoder, and has no sound.",
    click.Choice(["mp4", "gif"]),
    name="form",
    default="mp4",
)
@out_option
def moving_scenes(num_clips: int, seed: int, form: Literal["mp4", "gif"], out: Path) -> None:
    """Draw clips of two shapes that move in turn, with a tone for each event.

    Clips 2k and 2k + 1 show the same two events in opposite order; nothing else distinguishes
    the clips or their five captions. Both depend only on the seed and k.

    \b
    Example:
      pipeline prepare moving-scenes --clips 600 --seed 0 --out data/moving-scenes
    """
    from pipeline.studies.scenes.moving.draw_clips import draw_moving_scenes

    def draw() -> "Manifest":
        with progress_of("moving scenes", "clip") as progress:
            return draw_moving_scenes(out, num_clips, seed, form, progress)

    write_dataset(out, draw)
