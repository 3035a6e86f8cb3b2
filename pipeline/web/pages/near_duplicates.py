"""HTML page of near-duplicates: each group with its images side by side, in one file."""

import base64
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from pipeline.datasets.manifest import Manifest
from pipeline.images.shown_image import shown_image
from pipeline.store.files import require_folder, write_text
from pipeline.web.pages.rendering import MADE_BY, environment, jpeg_of

if TYPE_CHECKING:
    from pipeline.studies.near_duplicates.find import Duplicate, Duplicates

PICTURES = 600
"""Maximal number of images on a page, about 10 kB each; the first groups are shown."""

PICTURES_OF_GROUP = 24

_SIDE, _QUALITY = 224, 80


def write_page(
    duplicates: "Duplicates", file: str | Path, datasets: Mapping[Path, Manifest]
) -> None:
    """Write an offline page without scripts; sets without a dataset are shown without images."""
    path = Path(file)
    require_folder(path.parent)
    groups = list(_shown(duplicates, datasets))
    sets = list(dict.fromkeys(image.features for image in duplicates.images))
    text = environment("pipeline.web.pages").get_template("duplicates.html").render(
        duplicates=duplicates,
        groups=groups,
        measure="cosine" if duplicates.correlation is None else "correlation",
        left_out=len(duplicates) - len(groups),
        several_sets=len(sets) > 1,
        several_splits=len({image.split for image in duplicates.images}) > 1,
        sets=[str(folder) for folder in sets],
        licences=list(dict.fromkeys(dataset.licence for dataset in datasets.values())),
        made_by=f"{MADE_BY}, Pillow {version('pillow')}",
    )  # fmt: skip
    write_text(path, text)


def _shown(duplicates: "Duplicates", datasets: Mapping[Path, Manifest]) -> Iterator[dict[str, Any]]:
    number = 0
    for group in duplicates:
        images = group.images[:PICTURES_OF_GROUP]
        number += len(images)
        if number > PICTURES:
            return
        shown = [(image, *_jpeg(image, datasets.get(image.features))) for image in images]
        yield {"score": group.score, "images": shown, "more": len(group.images) - len(images)}


def _jpeg(image: "Duplicate", dataset: Manifest | None) -> tuple[str, str]:
    """Return the thumbnail of an image in base64, and why there is none; one of them is ""."""
    if dataset is None or image.id not in dataset.by_id:
        return "", "not in a specified dataset"
    decoded = shown_image(dataset.path_by_id[image.id], dataset.media)
    if decoded.image is None:
        return "", decoded.reason
    decoded.image.thumbnail((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    return base64.b64encode(jpeg_of(decoded.image, _QUALITY)).decode("ascii"), ""
