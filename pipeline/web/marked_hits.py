"""SVG files of image hits, with the box of the phrase drawn over each image."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from pipeline.images.decoding.decode import read_image
from pipeline.store.files import require_folder, write_text
from pipeline.web.pages.marked import Mark, marked_photo
from pipeline.web.pages.rendering import jpeg_of

if TYPE_CHECKING:
    from pipeline.regions.localization.region_searcher import RegionHit

_SIDE, _QUALITY = 480, 82


def write_marked(folder: str | Path, phrase: str, hits: "Sequence[RegionHit]") -> list[Path]:
    """Write an SVG for each hit, `01.svg` the first, and return the files.

    An image that cannot be decoded is blank.

    Parameters
    ----------
    folder : str or Path. Output folder.
    phrase : str. Label of the boxes.
    hits : sequence of RegionHit. Images with their boxes.

    Raises
    ------
    FileReadError
        A system error prevented reading an existing image.
    OutputError
        The folder is not writable.
    """
    folder = Path(folder)
    require_folder(folder)
    files = []
    for hit in hits:
        decoded, jpeg = read_image(hit.file).image, b""
        if decoded is not None:
            decoded.thumbnail((_SIDE, _SIDE), Image.Resampling.BICUBIC)
            jpeg = jpeg_of(decoded, _QUALITY)
        files.append(folder / f"{hit.rank:02d}.svg")
        described = f"{phrase} in {hit.id}"
        write_text(files[-1], marked_photo(jpeg, hit.size, [Mark(hit.box, phrase)], described))
    return files
