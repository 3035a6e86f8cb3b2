"""Captions of pictures that are in no dataset, such as a user's own files or an upload."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from pipeline.images.decoding.decode import UnusableImage
from pipeline.images.given_pictures import GivenPicture, picture_of
from pipeline.language.captioning.captions import Caption, Captioner
from pipeline.language.captioning.captions_file import Described
from pipeline.progress import QUIET, Monitor
from pipeline.retrieval.search import SearchError
from pipeline.search.picture_features import PictureFeatures


def describe_picture(
    captioner: Captioner,
    network: PictureFeatures,
    picture: Path | Image.Image,
    *,
    count: int = 5,
    seed: int = 0,
) -> tuple[Caption, ...]:
    """Return captions of one picture, a file or decoded, the best first.

    Parameters
    ----------
    captioner : what describes.
    network : of the recipe that the captioner takes.
    picture : what is described.
    count : how many captions at most.
    seed : of everything that is drawn.

    Raises
    ------
    SearchError, UnusableImage
        The picture is missing, unreadable or refused.
    """
    (captions,) = captioner.describe(network.of(picture), count=count, seed=seed)
    return tuple(captions)


def describe_pictures(
    captioner: Captioner,
    network: PictureFeatures,
    pictures: Sequence[GivenPicture],
    *,
    count: int = 5,
    seed: int = 0,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Describe images; one that cannot be read has its error, and the others captions.

    Parameters
    ----------
    captioner, network, count, seed : see `describe_picture`.
    pictures : sequence of images; see `pipeline.images.given_pictures.picture_of`. One that is not
        a path is called "image N", N from 0.
    monitor : Monitor. Receives progress in images.
    """
    described = []
    with monitor.progress("caption", "image") as progress:
        for number, picture in enumerate(pictures):
            name = str(picture) if isinstance(picture, str | Path) else f"image {number}"
            try:
                opened = picture_of(picture)
                found = describe_picture(captioner, network, opened, count=count, seed=seed)
                described.append(Described(name, found, "" if found else "no caption was found"))
            except (SearchError, UnusableImage) as error:
                described.append(Described(name, error=str(error)))
            progress(number + 1, len(pictures), sum(not d.captions for d in described))
    return described
