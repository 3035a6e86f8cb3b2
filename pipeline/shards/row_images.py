"""Which image of a dataset each row of a feature set belongs to, by the row's id."""

import re
from collections.abc import Container, Iterator, Sequence

# Captions are `<image id>#<k>`, regions `<image id>@<k>`.
_OF_IMAGE = re.compile(r"(.+)([#@])([0-9]+)", re.DOTALL)


def images_of_rows(ids: Sequence[str], images: Container[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the image of each row, what of the image the row is, and which of them.

    Parameters
    ----------
    ids : Sequence of str. All rows of a set of images, captions or regions, or some of them.
    images : Container of str. Ids of the dataset's images.

    Yields
    ------
    tuple of str, str, int
        Image id; "" for an image, "#" for a caption, "@" for a region; number of the caption or
        region. The image id of a row that belongs to no image of the dataset is not in `images`.
    """
    # In a set of captions `a#1` is one of `a`, even if another image is called so.
    all_images = all(row_id in images for row_id in ids)
    for row_id in ids:
        found = None if all_images else _OF_IMAGE.fullmatch(row_id)
        if found and (found[1] in images or row_id not in images):
            yield found[1], found[2], int(found[3])
        else:
            yield row_id, "", 0
