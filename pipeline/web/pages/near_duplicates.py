"""HTML page of near-duplicates: each group with its images side by side, in one file."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from pipeline import __version__
from pipeline.datasets.manifest import Manifest
from pipeline.images.shown_image import shown_image
from pipeline.store.files import require_folder, write_text
from pipeline.web.pages.rendering import environment, jpeg_of

if TYPE_CHECKING:
    from pipeline.studies.near_duplicates.find import Duplicate, Duplicates

PICTURES = 600
"""Maximal number of images on a page, about 10 kB each; the first groups are shown."""

PICTURES_OF_GROUP = 24

_SIDE, _QUALITY = 224, 80


@dataclass(frozen=True)
class Shown:
    """An image of a group on the page.

    Attributes
    ----------
    image : Duplicate. The image.
    jpeg : str. Thumbnail in base64, or "".
    missing : str. Why there is no thumbnail, or "".
    """

    image: "Duplicate"
    jpeg: str
    missing: str


@dataclass(frozen=True)
class ShownGroup:
    """A group on the page.

    Attributes
    ----------
    score : float. Highest score of a pair.
    images : list of Shown. The first images.
    more : int. Number of further images.
    """

    score: float
    images: list[Shown]
    more: int


def write_page(found: "Duplicates", file: str | Path, datasets: Mapping[Path, Manifest]) -> None:
    """Write an offline page without scripts.

    For many images it shows the first groups, and states how many are omitted. The same result and
    images produce the same bytes.

    Parameters
    ----------
    found : Duplicates. The near-duplicates.
    file : str or Path. The HTML file.
    datasets : mapping of Path to Manifest. Images by the folder of the feature set; other sets are
        shown without images.

    Raises
    ------
    FileReadError
        A system error prevented reading an existing image.
    OutputError
        The file cannot be written.
    """
    path = Path(file)
    require_folder(path.parent)
    groups = list(_shown(found, datasets))
    sets = list(dict.fromkeys(image.features for image in found.images))
    text = environment("pipeline.web.pages").get_template("duplicates.html").render(
        found=found,
        groups=groups,
        measure="cosine" if found.correlation is None else "correlation",
        left_out=len(found) - len(groups),
        several_sets=len(sets) > 1,
        several_splits=len({image.split for image in found.images}) > 1,
        sets=[str(folder) for folder in sets],
        licences=list(dict.fromkeys(dataset.licence for dataset in datasets.values())),
        made_by=f"caption-feature-pipeline {__version__}, Jinja {version('jinja2')}, "
        f"Pillow {version('pillow')}",
    )  # fmt: skip
    write_text(path, text)


def _shown(found: "Duplicates", datasets: Mapping[Path, Manifest]) -> Iterator[ShownGroup]:
    """Yield the groups with images on the page."""
    pictures = 0
    for group in found:
        images = group.images[:PICTURES_OF_GROUP]
        pictures += len(images)
        if pictures > PICTURES:
            return
        shown = [_picture(image, datasets.get(image.features)) for image in images]
        yield ShownGroup(group.score, shown, len(group.images) - len(images))


def _picture(image: "Duplicate", dataset: Manifest | None) -> Shown:
    if dataset is None or image.id not in dataset.by_id:
        return Shown(image, "", "not in a specified dataset")
    decoded = shown_image(dataset.path_by_id[image.id], dataset.media)
    if decoded.image is None:
        return Shown(image, "", decoded.reason)
    decoded.image.thumbnail((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    jpeg = jpeg_of(decoded.image, _QUALITY)
    return Shown(image, base64.b64encode(jpeg).decode("ascii"), "")
