"""Search with a trained experiment: find the images or sentences nearest to a query.

Read `searcher` first, the public entry point. `embedded_dataset` is the searched gallery and
`query_models` embeds queries. Similarities and the exact and approximate search are in
`pipeline.retrieval`. Nothing here trains or writes features.
"""

from typing import Literal

SIDES: dict[str, Literal["images", "captions"]] = {"images": "images", "sentences": "captions"}
"""Kind of result, as users name it, to the side of the embedding file with its rows."""


def default_side(image: bool, words: bool) -> str:
    """Return the default kind of result: sentences for an image query without words."""
    return "sentences" if image and not words else "images"
