"""`pipeline prepare scenes` and `moving-scenes`: datasets that the project draws."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from stages.command import Command
from stages.console import progress_of
from stages.prepare_options import out_option, write_dataset

if TYPE_CHECKING:
    from pipeline.datasets.manifest import Manifest

SEED = click.option("--seed", type=click.IntRange(0), default=0, help="Seed of all random choices.")


@click.command(cls=Command)
@click.option(
    "--num-images", type=click.IntRange(3, 100_000), default=600, help="Number of images."
)
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
@click.option(
    "--clips",
    "num_clips",
    type=click.IntRange(6, 100_000),
    default=600,
    help="Number of clips; even.",
)
@SEED
@click.option(
    "--format",
    "form",
    type=click.Choice(["mp4", "gif"]),
    default="mp4",
    help="File format; gif needs no encoder, and has no sound.",
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
