"""What every head offers, and how settings given as data become a head's own settings."""

import math
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, Protocol, TypeVar

import torch

from pipeline.heads.pairs import Features, HeadError, Pairs

History = list[dict[str, float]]
"""One entry an epoch (or one for a closed form): the figures worth plotting."""

Progress = Callable[[int, int, int], None]
"""Called with epochs done, epochs in all, and 0."""


class Head(Protocol):
    """A projection head: fitted on pairs, then it embeds images and captions in one space."""

    similarity: str
    """Name of the similarity that its embeddings are meant for."""

    def fit(self, train: Pairs, validation: Pairs, seed: int, progress: Progress) -> History:
        """Fit on `train`; `validation` may choose among epochs or settings, no more."""

    def embed_images(self, features: Features) -> Features:
        """Return (images, dim) float32 of (images, *shape) image features."""

    def embed_captions(self, features: Features) -> Features:
        """Return (captions, dim) float32 of (captions, *shape) caption features."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return everything that was learnt, by name."""

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave, from a head of the same settings and shapes."""


Settings = TypeVar("Settings")
Value = TypeVar("Value", int, float, bool)


def setting(default: Value, at_least: float = 0.0, below: float = math.inf) -> Value:
    """Declare a field of a settings dataclass with the range of its values."""
    value: Value = field(default=default, metadata={"at_least": at_least, "below": below})
    return value


def settings_from(kind: type[Settings], values: Mapping[str, Any], head: str) -> Settings:
    """Make a settings dataclass from plain values.

    Parameters
    ----------
    kind : a dataclass whose fields are declared with `setting`.
    values : what differs from the defaults.
    head : the head's name, for the message.

    Raises
    ------
    HeadError
        Unknown names (the known ones are listed), values of another type or out of range.
    """
    declared = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    known: dict[str, Any] = {name: f.default for name, f in declared.items()}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise HeadError(
            f"head {head!r} has no setting {', '.join(map(repr, unknown))}; it has "
            + ", ".join(f"{name} ({default})" for name, default in known.items())
        )
    for name, value in values.items():
        wanted = type(known[name])
        fits = isinstance(value, int | float) if wanted is float else isinstance(value, wanted)
        if not fits or (isinstance(value, bool) and wanted is not bool):
            raise HeadError(
                f"head {head!r}: setting {name} is {value!r}, expected {wanted.__name__} such as "
                f"{known[name]!r} (YAML takes 1e-4 for text; write 1.0e-4 or 0.0001)"
            )
        at_least, below = (declared[name].metadata[key] for key in ("at_least", "below"))
        if not at_least <= value < below:
            raise HeadError(
                f"head {head!r}: setting {name} is {value!r}, expected at least {at_least:g}"
                + (f" and below {below:g}" if below < math.inf else "")
            )
    return kind(**{n: type(known[n])(v) for n, v in values.items()})


def require_vectors(head: str, side: str, shape: tuple[int, ...]) -> int:
    """Return the dimension of features that must be vectors.

    Raises
    ------
    HeadError
        They are grids or sequences.
    """
    if len(shape) != 1:
        raise HeadError(
            f"head {head!r} takes one vector for each {side}, not rows of shape {shape}; use a "
            "recipe that pools"
        )
    return shape[0]
