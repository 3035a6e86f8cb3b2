"""Image of each row of a feature set, derived from the row id."""

import re
from collections.abc import Container, Iterator, Sequence

# Captions are `<image id>#<k>`, regions `<image id>@<k>`.
_OF_IMAGE = re.compile(r"(.+)([#@])([0-9]{1,18})", re.DOTALL)


def images_of_rows(ids: Sequence[str], images: Container[str]) -> Iterator[tuple[str, str, int]]:
    """Parse row ids: yield the image id, the kind and the number within the image of each row.

    Parameters
    ----------
    ids : Sequence of str. Row ids of images, captions or regions.
    images : Container of str. Image ids of the dataset.

    Yields
    ------
    tuple of str, str, int
        Image id, which is not in `images` if the dataset lacks the image; kind, "" for an image,
        "#" for a caption or "@" for a region; number of the caption or region from 0, and 0 for an
        image.
    """
    # In a set of captions, `a#1` is a caption of `a` even if an image has that id.
    all_images = all(row_id in images for row_id in ids)
    for row_id in ids:
        found = None if all_images else _OF_IMAGE.fullmatch(row_id)
        if found and (found[1] in images or row_id not in images):
            yield found[1], found[2], int(found[3])
        else:
            yield row_id, "", 0
