"""Captions of images outside a dataset: files or uploads."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from pipeline.images.decoding.decode import UnusableImage
from pipeline.images.given_pictures import GivenPicture, picture_of
from pipeline.language.captioning.captions import Caption, Captioner
from pipeline.language.captioning.captions_file import Described
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query.picture_features import PictureFeatures
from pipeline.store.progress import QUIET, Monitor


def describe_picture(
    captioner: Captioner,
    network: PictureFeatures,
    image: Path | Image.Image,
    *,
    count: int = 5,
    seed: int = 0,
) -> tuple[Caption, ...]:
    """Return captions of one image, given as a path or decoded, best first."""
    (captions,) = captioner.describe(network.of(image), count=count, seed=seed)
    return tuple(captions)


def describe_pictures(
    captioner: Captioner,
    network: PictureFeatures,
    images: Sequence[GivenPicture],
    *,
    count: int = 5,
    seed: int = 0,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Caption several images; an unreadable one has an error instead of captions."""
    described = []
    with monitor.progress("caption", "image") as progress:
        for number, image in enumerate(images):
            name = str(image) if isinstance(image, str | Path) else f"image {number}"
            try:
                opened = picture_of(image)
                captions = describe_picture(captioner, network, opened, count=count, seed=seed)
                reason = "" if captions else "no caption was found"
                described.append(Described(name, captions, reason))
            except (EmbeddingsError, UnusableImage) as error:
                described.append(Described(name, error=str(error)))
            progress(number + 1, len(images), sum(not d.captions for d in described))
    return described
