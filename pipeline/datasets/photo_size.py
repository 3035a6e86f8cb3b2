"""The size of a photo, from its header alone."""

from pathlib import Path

from PIL import ExifTags, Image

from pipeline.datasets.checks import DatasetError

# Orientations in which width and height change places when the photo is turned upright.
_SIDEWAYS = (5, 6, 7, 8)


def photo_size(path: Path) -> tuple[int, int]:
    """Return width and height in pixels of a photo as it is decoded, upright.

    Raises
    ------
    DatasetError
        The file is no photo.
    """
    try:
        with Image.open(path) as image:
            turned = image.getexif().get(ExifTags.Base.Orientation) in _SIDEWAYS
            return (image.height, image.width) if turned else image.size
    except (OSError, ValueError, SyntaxError) as error:
        raise DatasetError(
            f"{path} is no photo whose size can be read ({error}), so that its boxes cannot be "
            "checked; mend the file, or leave its lines out"
        ) from error
