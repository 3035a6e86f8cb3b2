"""Which images and captions of an embedding file count, and in which galleries."""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from pipeline.retrieval.blocks import Ranks
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.protocols import Protocol, ProtocolError
from pipeline.retrieval.ranks import image_rows


def galleries(embeddings: Embeddings, protocol: Protocol) -> list[Embeddings]:
    """Return the galleries of a protocol, images in the order of the embeddings' rows.

    Raises
    ------
    ProtocolError
        The images or captions are not as many as the protocol says.
    """
    there, number = len(embeddings.image_ids), protocol.captions_per_image
    size = there if protocol.images is None else protocol.images
    asked = size * protocol.folds
    if there < asked or (there > asked and not protocol.rest):
        folds = f" ({protocol.folds} folds of {size})" if protocol.folds > 1 else ""
        raise ProtocolError(
            f"the protocol {protocol.name} is of {asked} images{folds}, and there are {there}; "
            "embed the split that it is meant for, or take the protocol all"
            + (f" or first-{asked}" if there > asked else "")
        )
    counted = embeddings if number is None else first_captions(embeddings, number)
    image_of_caption = image_rows(counted)
    if number is not None and protocol.images is not None:
        of_image = np.bincount(image_of_caption, minlength=there)[:asked]
        short = [embeddings.image_ids[row] for row in np.flatnonzero(of_image < number)]
        if short:
            raise ProtocolError(
                f"the protocol {protocol.name} is of {number} captions an image, and {len(short)} "
                f"images have fewer, first {short[:5]}; add their captions, or count all captions "
                "of every image"
            )
    if protocol.sets:
        return _sets(embeddings, protocol)
    if asked == there and protocol.folds == 1:
        return [counted]
    return [_images(counted, image_of_caption, slice(k, k + size)) for k in range(0, asked, size)]


def first_captions(embeddings: Embeddings, number: int) -> Embeddings:
    """Keep the first `number` captions of every image, in the order of the rows.

    First by caption number where all of an image's captions are called `<image id>#<number>`,
    as this project names them; otherwise by their order in the file. Embeddings that have no
    more are returned as they are, not copied.

    Raises
    ------
    ValueError
        `number` is below 1.
    """
    if number < 1:
        raise ValueError(f"captions per image must be at least 1, {number} given")
    kept = [row for rows in _rows_of_images(embeddings).values() for row in rows[:number]]
    if len(kept) == len(embeddings.caption_ids):
        return embeddings
    return _subset(embeddings, slice(None), np.array(sorted(kept), np.int64))


def _sets(embeddings: Embeddings, protocol: Protocol) -> list[Embeddings]:
    """Return a gallery for each caption number: all images with their captions of that number."""
    of_image = _rows_of_images(embeddings)
    more = [image for image, rows in of_image.items() if len(rows) != protocol.sets]
    if more:
        raise ProtocolError(
            f"the protocol {protocol.name} is of {protocol.sets} captions an image, one for each "
            f"set, and {len(more)} images have more, first {more[:5]}"
        )
    everything = slice(None)
    return [
        _subset(embeddings, everything, np.array(sorted(rows), np.int64))
        for rows in zip(*of_image.values(), strict=True)
    ]


def _rows_of_images(embeddings: Embeddings) -> dict[str, list[int]]:
    """Return the rows of each image's captions, in the order of `first_captions`."""
    of_image: dict[str, list[int]] = defaultdict(list)
    for row, image_id in enumerate(embeddings.caption_image_ids):
        of_image[image_id].append(row)
    for image_id, rows in of_image.items():
        numbers = [_number(embeddings.caption_ids[row], image_id) for row in rows]
        if None not in numbers:
            of_image[image_id] = [row for _, row in sorted(zip(numbers, rows, strict=True))]
    return of_image


def _number(caption_id: str, image_id: str) -> int | None:
    start, _, number = caption_id.rpartition("#")
    return int(number) if start == image_id and number.isdecimal() else None


def _images(e: Embeddings, image_of_caption: Ranks, rows: slice) -> Embeddings:
    """Return some images with their captions."""
    kept = (image_of_caption >= rows.start) & (image_of_caption < rows.stop)
    return _subset(e, rows, np.flatnonzero(kept))


def _subset(e: Embeddings, images: slice, captions: Ranks) -> Embeddings:
    return replace(
        e,
        image_ids=e.image_ids[images],
        image_embeddings=e.image_embeddings[images],
        caption_ids=tuple(e.caption_ids[row] for row in captions),
        caption_image_ids=tuple(e.caption_image_ids[row] for row in captions),
        caption_embeddings=e.caption_embeddings[captions],
    )
