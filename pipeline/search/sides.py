"""The two sides of an embedding file by the names that users know, and which one is searched."""

from typing import Literal

SIDES: dict[str, Literal["images", "captions"]] = {"images": "images", "sentences": "captions"}
"""What can be looked for, and the side of the file that holds it."""


def default_side(image: bool, words: bool) -> str:
    """Return the name in `SIDES` of the default results of a query: sentences for an image alone.

    Parameters
    ----------
    image : bool. Whether the query is an image, not a sentence.
    words : bool. Whether words are subtracted or added.
    """
    return "sentences" if image and not words else "images"
