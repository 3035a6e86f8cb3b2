"""User-facing names of the two sides of an embedding file, and the default side of a query."""

from typing import Literal

SIDES: dict[str, Literal["images", "captions"]] = {"images": "images", "sentences": "captions"}
"""Kind of result to the side of the embedding file with its rows."""


def default_side(image: bool, words: bool) -> str:
    """Return the default kind of result, a name in `SIDES`: sentences for an image without words.

    Parameters
    ----------
    image : bool. Whether the query is an image, not a sentence.
    words : bool. Whether words are subtracted or added.
    """
    return "sentences" if image and not words else "images"
