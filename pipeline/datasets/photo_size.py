"""Image size, read from the file header."""

from pathlib import Path

from PIL import ExifTags, Image

from pipeline.datasets.checks import DatasetError

# EXIF orientations that swap width and height.
_SIDEWAYS = (5, 6, 7, 8)


def photo_size(path: Path) -> tuple[int, int]:
    """Return width and height in pixels of an image as decoded, upright.

    Raises
    ------
    DatasetError
        The file is not an image.
    """
    try:
        with Image.open(path) as image:
            turned = image.getexif().get(ExifTags.Base.Orientation) in _SIDEWAYS
            return (image.height, image.width) if turned else image.size
    except (OSError, ValueError, SyntaxError) as error:
        raise DatasetError(
            f"the size of {path} cannot be read ({error}), so its boxes cannot be checked; fix the "
            "file, or remove its lines"
        ) from error
