"""Captions of pictures that are in no dataset, such as a user's own files or an upload."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from pipeline.images.decode import UnusableImage
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
    files: Sequence[str],
    *,
    count: int = 5,
    seed: int = 0,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Describe picture files; one that cannot be read has its error, and the others captions.

    Parameters
    ----------
    captioner, network, count, seed : see `describe_picture`.
    files : paths; one that is given twice is described once.
    monitor : gets progress in images.
    """
    files = list(dict.fromkeys(files))
    described = []
    with monitor.progress("caption", "image") as progress:
        for number, file in enumerate(files, 1):
            try:
                found = describe_picture(captioner, network, Path(file), count=count, seed=seed)
                described.append(Described(file, found, "" if found else "no caption was found"))
            except (SearchError, UnusableImage) as error:
                described.append(Described(file, error=str(error)))
            progress(number, len(files), sum(not d.captions for d in described))
    return described
