"""Image of each row of a feature set, derived from the row id."""

import re
from collections.abc import Container, Iterator, Sequence

# Captions are `<image id>#<k>`, regions `<image id>@<k>`.
_OF_IMAGE = re.compile(r"(.+)([#@])([0-9]+)", re.DOTALL)


def images_of_rows(ids: Sequence[str], images: Container[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the image id of each row, the kind of row, and its number within the image.

    Parameters
    ----------
    ids : Sequence of str. Row ids of images, captions or regions.
    images : Container of str. Image ids of the dataset.

    Yields
    ------
    tuple of str, str, int
        Image id; "" for an image, "#" for a caption, "@" for a region; number of the caption or
        region. For a row without an image in the dataset, the image id is not in `images`.
    """
    # In a set of captions, `a#1` is a caption of `a` even if an image has that id.
    all_images = all(row_id in images for row_id in ids)
    for row_id in ids:
        found = None if all_images else _OF_IMAGE.fullmatch(row_id)
        if found and (found[1] in images or row_id not in images):
            yield found[1], found[2], int(found[3])
        else:
            yield row_id, "", 0
