"""Published protocols by name: numbers of images, captions and galleries."""

import re
from dataclasses import dataclass, replace

from pipeline.retrieval import EmbeddingsError
from pipeline.store.errors import UnknownName

_USUAL = 5


@dataclass(frozen=True)
class Protocol:
    """Evaluation protocol of a table."""

    name: str
    images: int | None = None  # per gallery; None: all images of the file
    # Number of galleries of that size, consecutive in row order; every figure is the mean
    # over them.
    folds: int = 1
    rest: bool = False  # whether further images are allowed, which are then ignored
    # The first ones, at most so many; with `images`, exactly so many. None: all.
    captions_per_image: int | None = _USUAL
    # If not 0, every image has this many captions, and the k-th captions of all images form a
    # gallery of their own; every figure is the mean over these.
    sets: int = 0


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("all"),
        Protocol("flickr8k", images=1000),
        Protocol("flickr30k", images=1000),
        Protocol("coco-5k", images=5000),
        Protocol("coco-1k", images=1000, folds=5),
        Protocol("msvd", images=670, captions_per_image=None),
        Protocol("trecvid-vtt", images=1915, captions_per_image=2, sets=2),
    )
}
"""Protocols with a name of their own; `first-N` uses the first N images."""


def resolve_protocol(name: str, captions_per_image: int | None = _USUAL) -> Protocol:
    """Return a protocol by its name, one of `PROTOCOLS` or `first-N`."""
    if name in PROTOCOLS:
        protocol = PROTOCOLS[name]
        if (defined := protocol.captions_per_image) != _USUAL:
            if captions_per_image not in (_USUAL, defined):
                raise EmbeddingsError(
                    f"the protocol {name} counts {defined or 'all'} captions of a clip, and "
                    f"{captions_per_image or 'all'} were requested; omit the number"
                )
            return protocol
    elif first := re.fullmatch("first-([1-9][0-9]{0,9})", name):
        protocol = Protocol(name, images=int(first[1]), rest=True)
    else:
        raise UnknownName(
            f"unknown protocol {name!r}; expected one of {', '.join(PROTOCOLS)}, or first-N with a "
            "number of images such as first-1000"
        )
    return replace(protocol, captions_per_image=captions_per_image)
