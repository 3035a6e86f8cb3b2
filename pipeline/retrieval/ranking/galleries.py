"""Images and captions of an embedding file that are ranked together in a gallery."""

from dataclasses import replace

import numpy as np

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.blocks import Ranks
from pipeline.retrieval.ranking.protocols import Protocol
from pipeline.store.packed import PackedTexts

_MOST_DIGITS = 18


def galleries(embeddings: Embeddings, protocol: Protocol) -> list[Embeddings]:
    """Return the galleries of a protocol, images in the order of the embeddings' rows."""
    there, number = len(embeddings.image_ids), protocol.captions_per_image
    size = there if protocol.images is None else protocol.images
    required = size * protocol.folds
    if there < required or (there > required and not protocol.rest):
        folds = f" ({protocol.folds} folds of {size})" if protocol.folds > 1 else ""
        raise EmbeddingsError(
            f"the protocol {protocol.name} requires {required} images{folds}, but there are "
            f"{there}; embed the split of the protocol, or use the protocol all"
            + (f" or first-{required}" if there > required else "")
        )
    counted = first_captions(embeddings, number)
    image_of_caption = counted.image_of_caption
    if number is not None and protocol.images is not None:
        of_image = np.bincount(image_of_caption, minlength=there)[:required]
        few = np.flatnonzero(of_image < number).tolist()
        short = [embeddings.image_ids[row] for row in few]
        if short:
            raise EmbeddingsError(
                f"the protocol {protocol.name} requires {number} captions per image, but "
                f"{len(short)} images have fewer, first {short[:5]}; add their captions, or count "
                "all captions of every image"
            )
    if protocol.sets:
        return _sets(embeddings, protocol)
    if required == there and protocol.folds == 1:
        return [counted]
    parts = (slice(start, start + size) for start in range(0, required, size))
    return [images_between(counted, image_of_caption, part) for part in parts]


def first_captions(embeddings: Embeddings, number: int | None) -> Embeddings:
    """Keep the first `number` captions of every image; if these are all, or None, return as is."""
    if number is None:
        return embeddings
    if number < 1:
        raise ValueError(f"captions per image must be at least 1, found {number}")
    position = _caption_positions(embeddings)
    if (position < number).all():
        return embeddings
    return _subset(embeddings, slice(None), np.flatnonzero(position < number))


def _sets(embeddings: Embeddings, protocol: Protocol) -> list[Embeddings]:
    """Return one gallery per caption number: all images with their captions of that number."""
    number = np.bincount(embeddings.image_of_caption, minlength=len(embeddings.image_ids))
    if (more := np.flatnonzero(number != protocol.sets)).size:
        raise EmbeddingsError(
            f"the protocol {protocol.name} requires {protocol.sets} captions per image, one for "
            f"each set, but {more.size} images have more or fewer, first "
            f"{[embeddings.image_ids[row] for row in more[:5].tolist()]}"
        )
    position = _caption_positions(embeddings)
    everything = slice(None)
    return [
        _subset(embeddings, everything, np.flatnonzero(position == at))
        for at in range(protocol.sets)
    ]


def _caption_positions(embeddings: Embeddings) -> Ranks:
    """Return the position of each caption among those of its image, from 0."""
    image = embeddings.image_of_caption
    named = zip(embeddings.caption_ids, embeddings.caption_image_ids, strict=True)
    number = np.fromiter((_number(*ids) for ids in named), np.int64, len(image))
    # By the number in `<image id>#<number>`; if one caption lacks it, all of its image keep the
    # order of the file.
    unnumbered = np.zeros(len(embeddings.image_ids), bool)
    unnumbered[image[number < 0]] = True
    number[unnumbered[image]] = 0
    order = np.lexsort((np.arange(len(image)), number, image))
    starts = np.searchsorted(image[order], image[order], side="left")
    position = np.empty(len(image), np.int64)
    position[order] = np.arange(len(image)) - starts
    return position


def _number(caption_id: str, image_id: str) -> int:
    """Return the number in a caption's id; -1 if it has none or an excessive one."""
    start, _, number = caption_id.rpartition("#")
    named = start == image_id and number.isdecimal() and len(number) < _MOST_DIGITS
    return int(number) if named else -1


def images_between(e: Embeddings, image_of_caption: Ranks, rows: slice) -> Embeddings:
    """Return some images with their captions."""
    inside = (image_of_caption >= rows.start) & (image_of_caption < rows.stop)
    return _subset(e, rows, np.flatnonzero(inside))


def _subset(e: Embeddings, images: slice, captions: Ranks) -> Embeddings:
    return replace(
        e,
        image_ids=e.image_ids[images],
        image_embeddings=e.image_embeddings[images],
        caption_ids=PackedTexts(e.caption_ids[row] for row in captions.tolist()),
        caption_image_ids=PackedTexts(e.caption_image_ids[row] for row in captions.tolist()),
        caption_embeddings=e.caption_embeddings[captions],
    )
