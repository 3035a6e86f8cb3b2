"""The published protocols by name: how many images and captions count, in how many galleries."""

import re
from dataclasses import dataclass, replace

from pipeline.errors import PipelineError, UnknownName

_USUAL = 5


class ProtocolError(PipelineError):
    """A protocol is not known, or the embeddings cannot meet it."""


class UnknownProtocol(ProtocolError, UnknownName):
    """No protocol has this name."""


@dataclass(frozen=True)
class Protocol:
    """How the figures of a table were taken.

    Attributes
    ----------
    name : as `resolve_protocol` knows it.
    images : images of one gallery; None takes all images of the file.
    folds : galleries of that size, one after the other in the order of the embeddings' rows;
        every figure is the mean over them.
    rest : whether there may be further images, which are then left out.
    captions_per_image : captions of an image that count at most, the first ones, and with
        `images` given none may have fewer; None counts all.
    sets : where it is not 0, every image has this many captions, and the k-th captions of all
        images are a gallery of their own; every figure is the mean over these.
    """

    name: str
    images: int | None = None
    folds: int = 1
    rest: bool = False
    captions_per_image: int | None = _USUAL
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
"""The protocols with a name of their own; `first-N` takes the first N images."""


def resolve_protocol(name: str, captions_per_image: int | None = _USUAL) -> Protocol:
    """Return a protocol by its name, one of `PROTOCOLS` or `first-N`.

    Parameters
    ----------
    name : of the protocol.
    captions_per_image : captions of an image that count at most; None counts all. Those that say
        themselves which count, msvd and trecvid-vtt, take no other number than the usual 5.

    Raises
    ------
    ProtocolError
        There is none of that name, or it says itself which captions count.
    """
    if name in PROTOCOLS:
        protocol = PROTOCOLS[name]
        if (own := protocol.captions_per_image) != _USUAL:
            if captions_per_image not in (_USUAL, own):
                raise ProtocolError(
                    f"the protocol {name} counts {own or 'all'} captions of a clip, and "
                    f"{captions_per_image or 'all'} were asked for; leave the number out"
                )
            return protocol
    elif first := re.fullmatch("first-([1-9][0-9]{0,9})", name):
        protocol = Protocol(name, images=int(first[1]), rest=True)
    else:
        raise UnknownProtocol(
            f"protocol {name!r} is not known; expected one of {', '.join(PROTOCOLS)}, or first-N "
            "with a number of images such as first-1000"
        )
    return replace(protocol, captions_per_image=captions_per_image)
