"""Which images and captions of a file count, in how many galleries: the published protocols."""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipeline.errors import PipelineError
from pipeline.retrieval import bootstrap
from pipeline.retrieval.bootstrap import RankedGallery, intervals
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranks import Ranker, Ranks, image_rows, rank_both_ways
from pipeline.retrieval.recall import (
    CUTOFFS,
    DIRECTIONS,
    chance,
    first_captions,
    mean_inverted_rank,
    table_of_ranks,
)

Table = dict[str, float | int]

EXTRA_COLUMNS = (
    *(f"{d}_mean_inverted_rank" for d in DIRECTIONS),
    *(f"{d}_r{k}_chance" for d in DIRECTIONS for k in CUTOFFS),
    *(f"{d}_{m}_{end}" for d in DIRECTIONS for m in bootstrap.MEASURES for end in ("low", "high")),
    "rsum_low",
    "rsum_high",
    "num_folds",
)
"""What `evaluate` adds to the columns of a recall table, all or none."""


class ProtocolError(PipelineError):
    """A protocol is not known, or the embeddings cannot meet it."""


@dataclass(frozen=True)
class Protocol:
    """How the figures of a table were taken.

    Attributes
    ----------
    name : as `resolve_protocol` knows it.
    images : images of one gallery; None takes all that there are.
    folds : galleries of that size, one after the other in the order of the embeddings' rows;
        every figure is the mean over them.
    rest : whether there may be further images, which are then left out.
    captions_per_image : the first so many captions of an image count, and with `images` given
        none may have fewer; None counts all.
    """

    name: str
    images: int | None = None
    folds: int = 1
    rest: bool = False
    captions_per_image: int | None = 5


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("all"),
        Protocol("flickr8k", images=1000),
        Protocol("flickr30k", images=1000),
        Protocol("coco-5k", images=5000),
        Protocol("coco-1k", images=1000, folds=5),
    )
}
"""The protocols with a name of their own; `first-N` takes the first N images."""


@dataclass(frozen=True)
class Evaluation:
    """What a protocol gives.

    Attributes
    ----------
    table : the columns of `pipeline.retrieval.recall.recall_table`, then `EXTRA_COLUMNS`.
        `num_images` and `num_captions` count all folds.
    folds : the same columns up to the captions' number, of each fold; () with one gallery.
    provenance : the protocol and the intervals' parameters, as JSON values.
    """

    table: Table
    folds: tuple[Table, ...]
    provenance: dict[str, Any]


def resolve_protocol(name: str, captions_per_image: int | None = 5) -> Protocol:
    """Return a protocol by its name, one of `PROTOCOLS` or `first-N`.

    Raises
    ------
    ProtocolError
        There is none of that name.
    """
    if name in PROTOCOLS:
        protocol = PROTOCOLS[name]
    elif first := re.fullmatch("first-([1-9][0-9]{0,9})", name):
        protocol = Protocol(name, images=int(first[1]), rest=True)
    else:
        raise ProtocolError(
            f"protocol {name!r} is not known; expected one of {', '.join(PROTOCOLS)}, or first-N "
            "with a number of images such as first-1000"
        )
    return replace(protocol, captions_per_image=captions_per_image)


def evaluate(
    embeddings: Embeddings, protocol: Protocol, rank: Ranker = rank_both_ways
) -> Evaluation:
    """Rank both ways under a protocol, with chance levels and confidence intervals.

    The figures of folds are means, the median and mean rank too (as vsepp and SCAN do), and so
    is `rsum`. `<direction>_r<K>_chance` is what a random order would give, `..._low` and
    `..._high` the bounds of `pipeline.retrieval.bootstrap.intervals`. `rank` is what ranks each
    gallery; `pipeline.retrieval.on_device.rank_on` gives one for a GPU.

    Raises
    ------
    ProtocolError
        The images or captions are not as many as the protocol says.
    EmbeddingsError
        See `rank_both_ways`.
    """
    tables: list[Table] = []
    ranked: list[RankedGallery] = []
    for gallery in galleries(embeddings, protocol):
        ranks = rank(gallery)
        table = table_of_ranks(gallery, ranks)
        for direction, found in zip(DIRECTIONS, ranks, strict=True):
            table[f"{direction}_mean_inverted_rank"] = mean_inverted_rank(found)
        table |= {f"{name}_chance": level for name, level in chance(gallery).items()}
        tables.append(table)
        ranked.append(RankedGallery(*ranks, image_rows(gallery)))
    table = tables[0] if len(tables) == 1 else _mean(tables)
    table |= {**intervals(ranked), "num_folds": len(tables)}
    return Evaluation(
        table,
        tuple(tables) if len(tables) > 1 else (),
        {
            "protocol": asdict(protocol),
            "intervals": {
                "method": "percentile bootstrap over images with their captions",
                "resamples": bootstrap.RESAMPLES,
                "seed": bootstrap.SEED,
                "level": bootstrap.LEVEL,
            },
        },
    )


def galleries(embeddings: Embeddings, protocol: Protocol) -> list[Embeddings]:
    """Return the galleries of a protocol, images in the order of the embeddings' rows.

    Raises
    ------
    ProtocolError
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
    if asked == there and protocol.folds == 1:
        return [counted]
    return [_images(counted, image_of_caption, slice(k, k + size)) for k in range(0, asked, size)]


def _images(e: Embeddings, image_of_caption: Ranks, rows: slice) -> Embeddings:
    kept = np.flatnonzero((image_of_caption >= rows.start) & (image_of_caption < rows.stop))
    return replace(
        e,
        image_ids=e.image_ids[rows],
        image_embeddings=e.image_embeddings[rows],
        caption_ids=tuple(e.caption_ids[row] for row in kept),
        caption_image_ids=tuple(e.caption_image_ids[row] for row in kept),
        caption_embeddings=e.caption_embeddings[kept],
    )


def _mean(tables: list[Table]) -> Table:
    """Return the mean of every figure, the sum of the images and captions."""
    mean: Table = {name: float(np.mean([t[name] for t in tables])) for name in tables[0]}
    for name, total in (("num_images", sum), ("num_captions", sum), ("captions_per_image", max)):
        mean[name] = total(int(t[name]) for t in tables)
    return mean
