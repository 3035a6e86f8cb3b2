"""What every head offers, and how settings given as data become a head's own settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from pipeline.heads.data.pairs import Pairs
from pipeline.heads.data.rows import Features, Rows
from pipeline.heads.errors import HeadError
from pipeline.progress import Progress, no_progress

History = list[dict[str, float]]
"""One entry an epoch (or one for a closed form): the figures worth plotting."""


@dataclass(frozen=True)
class Run:
    """Circumstances of one fitting.

    Attributes
    ----------
    seed : of everything random.
    progress : called with epochs done, epochs in all, and 0.
    work : folder of checkpoints; None keeps none.
    workers : processes that read batches ahead; 0 reads them in this one. No result depends on
        it.
    device : where the network is trained.
    words : (num_ids, d) float32, a vector for each word number and NaN where there is none, for
        heads that read words and may start from known vectors.
    """

    seed: int
    progress: Progress = no_progress
    work: Path | None = None
    workers: int = 0
    device: str = "cpu"
    words: Features | None = None


class Head(Protocol):
    """A projection head: fitted on pairs, then it embeds images and captions in one space."""

    similarity: str
    """Name of the similarity that its embeddings are meant for."""

    def fit(self, train: Pairs, validation: Pairs, run: Run) -> History:
        """Fit on `train`; `validation` may choose among epochs or settings, no more."""

    def embed_images(self, rows: Rows) -> Features:
        """Return (images, dim) float32, or (images, parts, dim) with zero vectors for none."""

    def embed_captions(self, rows: Rows) -> Features:
        """Return (captions, dim) float32, or (captions, parts, dim) with zero vectors for none."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return everything that was learnt, by name."""

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave, from a head of the same settings and inputs."""


Settings = TypeVar("Settings")
Value = TypeVar("Value", int, float, bool)


def setting(default: Value, at_least: float = 0.0, below: float = math.inf) -> Value:
    """Declare a field of a settings dataclass with the range of its values."""
    value: Value = field(default=default, metadata={"at_least": at_least, "below": below})
    return value


def choice(default: str, *others: str) -> str:
    """Declare a field of a settings dataclass that is one of some texts."""
    value: str = field(default=default, metadata={"choices": (default, *others)})
    return value


def settings_from(kind: type[Settings], values: Mapping[str, Any], head: str) -> Settings:
    """Make a settings dataclass from plain values.

    Parameters
    ----------
    kind : a dataclass whose fields are declared with `setting` and `choice`.
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
        about = declared[name].metadata
        if "choices" in about:
            if value not in about["choices"]:
                raise HeadError(
                    f"head {head!r}: setting {name} is {value!r}, expected one of "
                    + ", ".join(about["choices"])
                )
            continue
        wanted = type(known[name])
        fits = isinstance(value, int | float) if wanted is float else isinstance(value, wanted)
        if not fits or (isinstance(value, bool) and wanted is not bool):
            raise HeadError(
                f"head {head!r}: setting {name} is {value!r}, expected {wanted.__name__} such as "
                f"{known[name]!r} (YAML takes 1e-4 for text; write 1.0e-4 or 0.0001)"
            )
        if not about["at_least"] <= value < about["below"]:
            raise HeadError(
                f"head {head!r}: setting {name} is {value!r}, expected at least "
                f"{about['at_least']:g}"
                + (f" and below {about['below']:g}" if about["below"] < math.inf else "")
            )
    return kind(**{n: type(known[n])(v) for n, v in values.items()})
