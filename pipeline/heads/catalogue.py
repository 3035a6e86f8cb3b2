"""The heads by name."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.heads.interface import Head, settings_from
from pipeline.heads.pairs import HeadError
from pipeline.heads.ridge import RidgeHead, RidgeSettings
from pipeline.heads.two_branch import TwoBranchHead, TwoBranchSettings

Shape = tuple[int, ...]


@dataclass(frozen=True)
class HeadKind:
    """A head's settings and how to make it from them and the shapes of its inputs."""

    settings: type[Any]
    make: Callable[[Any, Shape, Shape], Head]


HEADS = {
    "ridge": HeadKind(RidgeSettings, RidgeHead),
    "two-branch": HeadKind(TwoBranchSettings, TwoBranchHead),
}


def make_head(name: str, settings: Mapping[str, Any], images: Shape, captions: Shape) -> Head:
    """Return an unfitted head.

    Parameters
    ----------
    name : a key of `HEADS`.
    settings : what differs from the head's defaults.
    images, captions : shape of one row of each side.

    Raises
    ------
    HeadError
        No such head (the nearest names are listed), unknown settings, or features that the head
        cannot take.
    """
    if name not in HEADS:
        near = difflib.get_close_matches(name, HEADS, n=3, cutoff=0.4) or list(HEADS)
        raise HeadError(f"no head is called {name!r}; did you mean {' or '.join(near)}?")
    kind = HEADS[name]
    return kind.make(settings_from(kind.settings, settings, name), images, captions)
