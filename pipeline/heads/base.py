"""What every head offers and what heads share.

`Head` is the protocol, `FitOptions` the circumstances of a fitting. Below it: features through a
fitted module, the figures of a validation split, and settings given as data.
"""

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar, get_args

import numpy as np
import torch
from msgspec import Meta
from torch import nn

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import Features, Rows, in_blocks
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.pairs import HeldOut, Pairs
from pipeline.progress import QUIET, Progress, no_progress
from pipeline.schema import SchemaError, convert

# Enough for full matrix products, few enough for a long caption's activations.
_ROWS = 512

History = list[dict[str, float]]
"""One entry an epoch (or one for a closed form): the figures worth plotting."""


@dataclass(frozen=True)
class FitOptions:
    """How a head is fitted, beside its settings and its data.

    Attributes
    ----------
    seed : of everything random.
    progress : called with epochs done, epochs in all, and 0.
    log : called with a line on what the data do not allow.
    work : folder of checkpoints; None keeps none.
    workers : processes that read batches ahead; 0 reads them in this one. No result depends on
        it.
    device : where the network is trained.
    words : (vocab_size, d) float32, a vector for each token id and NaN where there is none, for
        heads that read words and may start from known vectors.
    start : tensors of a trained head of the same architecture, which training goes on from.
    precision : of the products of the network's layers while it trains, "float32" or "bf16"; see
        `pipeline.heads.layers.products`.
    """

    seed: int
    progress: Progress = no_progress
    work: Path | None = None
    workers: int = 0
    device: str = "cpu"
    words: Features | None = None
    start: Mapping[str, torch.Tensor] | None = None
    precision: str = "float32"
    log: Callable[[str], None] = QUIET.log


class Head(Protocol):
    """A projection head: fitted on pairs, then it embeds images and captions in one space."""

    similarity: str
    """Name of the similarity that its embeddings are meant for."""

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Fit on `train`; `validation` may choose among epochs or settings, no more."""

    def embed_images(self, rows: Rows) -> Features:
        """Return (images, dim) float32, or (images, parts, dim) with zero vectors for none."""

    def embed_captions(self, rows: Rows) -> Features:
        """Return (captions, dim) float32, or (captions, parts, dim) with zero vectors for none."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return everything that was learnt, by name."""

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave, from a head of the same settings and inputs."""


def require_fitted(net: nn.ModuleDict | None) -> nn.ModuleDict:
    """Return a head's modules.

    Raises
    ------
    HeadError
        There are none yet.
    """
    if net is None:
        raise HeadError("this head has not learnt anything yet; fit it or load a trained one")
    return net


@torch.inference_mode()
def embed_rows(module: nn.Module, rows: Rows, device: torch.device) -> Features:
    """Return the embeddings (n, ...) float32 of all rows, each by itself.

    Parameters
    ----------
    module : in evaluation mode, on `device`; from (n, *row_shape) float32 to (n, ...) float32.
    rows : at least one.
    """
    chunks = [
        module(torch.from_numpy(block).to(device)).cpu().numpy() for block in in_blocks(rows, _ROWS)
    ]
    return np.concatenate(chunks)


def retrieval_figures(
    net: nn.ModuleDict,
    similarity: str,
    held_out: HeldOut,
    device: torch.device,
    images: Rows | None = None,
) -> dict[str, float]:
    """Return the figures of a split under a network; see `HeldOut.figures`.

    Parameters
    ----------
    net : its modules "image" and "caption", in evaluation mode, on `device`.
    similarity : that its embeddings are meant for.
    held_out : the split.
    images : in place of the split's, such as its images scaled.

    Raises
    ------
    HeadError
        An embedding is not finite.
    """
    embedded = embed_rows(net["image"], held_out.images if images is None else images, device)
    captions = embed_rows(net["caption"], held_out.captions, device)
    if not (np.isfinite(embedded).all() and np.isfinite(captions).all()):
        raise HeadError(
            "training diverged: an embedding of the validation split is not finite; lower the "
            "learning rate, or check the features for outliers"
        )
    return held_out.figures(embedded, captions, similarity)


@dataclass(frozen=True)
class HeadKind:
    """What the catalogue needs of a head's module, which gives it under the name `HEAD`.

    Attributes
    ----------
    settings : dataclass whose fields are declared with `setting`, `choice` and `text`.
    make : returns an unfitted head of settings, for features of both sides; HeadError where it
        cannot take them.
    """

    settings: type[Any]
    make: Callable[[Any, HeadInputs], Head]


Settings = TypeVar("Settings")
Value = TypeVar("Value", int, float, bool, tuple[int, ...])

_RENAMED = {
    "unit": ("l2_normalise",),
    "image_input": ("image_scaling",),
    "state": ("hidden_size",),
    "heads": ("attention_heads",),
    "warm_up": ("mean_hinge_epochs",),
    "decay": ("lr_decay", "rmsprop_alpha"),
    "decay_every": ("lr_decay_every",),
    "half_from": ("lr_milestones",),
    "tenth_from": ("lr_milestones",),
    "text_to_image": ("text_to_image_weight",),
    "structure": ("structure_weight",),
    "top": ("top_k",),
    "sum": ("sum_of_hinges",),
    "hardest": ("max_of_hinges",),
    "sampled": ("sampled_contrast",),
    "contrastive": ("info_nce",),
}
"""Settings and values of settings that were called otherwise before: old name -> new names."""


def setting(default: Value, at_least: float = 0, below: float | None = None) -> Value:
    """Declare a number of a settings dataclass, or some ascending ones, with their range."""
    first = default[0] if isinstance(default, tuple) else default
    kind: Any = type(first)
    if kind is not bool:
        kind = Annotated[kind, Meta(ge=kind(at_least), lt=below)]
    if isinstance(default, tuple):
        kind = tuple.__class_getitem__((kind,) * len(default))
    value: Value = field(default=default, metadata={"type": kind})
    return value


def numbers(kind: type[int] | type[float], at_least: float = 0) -> Any:
    """Declare some numbers of a settings dataclass, none by default; whole ones ascend."""
    one: Any = Annotated[kind, Meta(ge=kind(at_least))]
    return field(default=(), metadata={"type": tuple.__class_getitem__((one, ...))})


def choice(default: str, *others: str) -> str:
    """Declare a field of a settings dataclass that is one of some texts."""
    one_of: Any = Literal
    value: str = field(default=default, metadata={"type": one_of[(default, *others)]})
    return value


def text(default: str) -> str:
    """Declare a field of a settings dataclass that is any text."""
    value: str = field(default=default, metadata={"type": str})
    return value


def settings_from(kind: type[Settings], values: Mapping[str, Any], head: str) -> Settings:
    """Make a settings dataclass from plain values.

    Parameters
    ----------
    kind : a dataclass whose fields are declared with `setting`, `numbers`, `choice` and `text`.
    values : what differs from the defaults, as JSON or YAML has it: a list for a tuple.
    head : the head's name, for the message.

    Raises
    ------
    HeadError
        Unknown names (the known ones are listed), values of another type or out of range.
    """
    declared = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := [name for name in values if name not in declared]:
        raise HeadError(
            f"head {head!r} has no setting {', '.join(map(repr, unknown))}"
            + "".join(_renamed(name, declared) for name in unknown)
            + "; it has "
            + ", ".join(f"{name} ({f.default})" for name, f in declared.items())
        )
    return kind(**{name: _checked(declared[name], value, head) for name, value in values.items()})


def _checked(declared: Field[Any], value: Any, head: str) -> Any:
    """Return the value of a setting in the setting's own type."""
    default, kind = declared.default, declared.metadata["type"]
    try:
        made = convert([*value] if isinstance(value, tuple) else value, kind)
        found = made if isinstance(made, tuple) else (made,)
        if any(isinstance(one, float) and not math.isfinite(one) for one in found):
            raise SchemaError(f"Expected a finite number, found {value}")
        if all(isinstance(one, int) for one in found) and [*found] != sorted(found):
            raise SchemaError(f"Expected ascending numbers, found {value}")
    except SchemaError as error:
        yaml = isinstance(value, str) and isinstance(default, float)
        raise HeadError(
            f"head {head!r}: setting {declared.name}: {error}; its default is {default!r}"
            + _renamed(value, get_args(kind))
            + (" (YAML takes 1e-4 for text; write 1.0e-4 or 0.0001)" if yaml else "")
        ) from error
    return made


def _renamed(name: object, known: Container[str]) -> str:
    """Return the end of a message, the new name of an old setting; empty if it is not old."""
    return "".join(f" ({name} is now {new})" for new in _RENAMED.get(str(name), ()) if new in known)
