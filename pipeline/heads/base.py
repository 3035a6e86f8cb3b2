"""The protocol of a head, and what heads share.

`Head` is the protocol, `FitOptions` the options of one fit. Further functions run features through
a fitted module, evaluate the validation split and parse settings.
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
from pipeline.store.progress import QUIET, Progress, no_progress
from pipeline.store.schema import SchemaError, convert

# Enough for efficient matrix products, few enough for the activations of long captions.
_ROWS = 512

History = list[dict[str, float]]
"""One entry of metrics per epoch; a closed-form head has one per candidate solution."""


@dataclass(frozen=True)
class FitOptions:
    """Options of one fit, apart from settings and data.

    Attributes
    ----------
    seed : int. Seed of all random numbers.
    progress : callable. Called with the epochs done, the total number of epochs, and 0.
    log : callable. Called with one line per remark on the data.
    work : Path or None. Checkpoint folder; None: no checkpoints.
    workers : int. Number of prefetch processes; 0 loads batches in this one. Results do not depend
        on it.
    device : torch device for training.
    words : (vocab_size, d) float32 word vectors by token id, NaN for unknown ones; initialises
        heads that read words.
    start : mapping of str to torch.Tensor or None. Tensors of a trained head of the same
        architecture, from which training continues.
    precision : str. "float32" or "bf16", for the matrix products of layers in training; see
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
    """A projection head: fitted on pairs, it embeds images and captions in one space."""

    similarity: str
    """Name of the similarity to compare the embeddings with."""

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Fit on `train`; `validation` is for model selection only."""

    def embed_images(self, rows: Rows) -> Features:
        """Return (images, dim) float32, or (images, parts, dim) padded with zero vectors."""

    def embed_captions(self, rows: Rows) -> Features:
        """Return (captions, dim) float32, or (captions, parts, dim) padded with zero vectors."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all fitted tensors by name."""

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Load tensors that `tensors` of a head with the same settings and inputs returned."""


def require_fitted(net: nn.ModuleDict | None) -> nn.ModuleDict:
    """Return the modules of a head; raise if it is not fitted.

    Raises
    ------
    HeadError
    """
    if net is None:
        raise HeadError("this head is not fitted; call fit, or load a trained head")
    return net


@torch.inference_mode()
def embed_rows(module: nn.Module, rows: Rows, device: torch.device) -> Features:
    """Return the embeddings (n, ...) float32 of all rows, in batches.

    Parameters
    ----------
    module : nn.Module. Module in evaluation mode on `device`, from (n, *row_shape) to (n, ...)
        float32.
    rows : Rows. At least one row.
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
    with_map: bool = False,
) -> dict[str, float]:
    """Return the metrics of a split under a network; see `HeldOut.figures`.

    Parameters
    ----------
    net : nn.ModuleDict. Modules "image" and "caption", in evaluation mode on `device`.
    similarity : str. Name of the similarity.
    held_out : HeldOut. The split.
    device : torch device of `net`.
    images : Rows or None. Image features in place of the split's, such as scaled ones.
    with_map : bool. Whether to include the mean average precision of image queries.

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
    return held_out.figures(embedded, captions, similarity, with_map)


@dataclass(frozen=True)
class HeadKind:
    """Registry entry of a head; each architecture module exports one as `HEAD`.

    Attributes
    ----------
    settings : type. Dataclass with fields declared by `setting`, `numbers`, `choice` and `text`.
    make : callable. Function from settings and feature specs of both sides to an unfitted head;
        raises HeadError for unsupported features.
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
"""Renamed settings and values: old name -> new names."""


def setting(default: Value, at_least: float = 0, below: float | None = None) -> Value:
    """Declare a numeric field of a settings dataclass, or an ascending tuple, with its range."""
    first = default[0] if isinstance(default, tuple) else default
    kind: Any = type(first)
    if kind is not bool:
        kind = Annotated[kind, Meta(ge=kind(at_least), lt=below)]
    if isinstance(default, tuple):
        kind = tuple.__class_getitem__((kind,) * len(default))
    value: Value = field(default=default, metadata={"type": kind})
    return value


def numbers(kind: type[int] | type[float], at_least: float = 0) -> Any:
    """Declare a tuple of numbers in a settings dataclass, empty by default; integers ascend."""
    one: Any = Annotated[kind, Meta(ge=kind(at_least))]
    return field(default=(), metadata={"type": tuple.__class_getitem__((one, ...))})


def choice(default: str, *others: str) -> str:
    """Declare a field of a settings dataclass with one of several values."""
    one_of: Any = Literal
    value: str = field(default=default, metadata={"type": one_of[(default, *others)]})
    return value


def epoch_selection() -> str:
    """Declare the field `selection` of a settings dataclass: the epoch whose weights are kept.

    "rsum" or "map" is the epoch with the highest sum of recalls or mean average precision of image
    queries on the validation split, "last" the last one, without early stopping.
    """
    return choice("rsum", "map", "last")


def text(default: str) -> str:
    """Declare a text field of a settings dataclass."""
    value: str = field(default=default, metadata={"type": str})
    return value


def settings_from(kind: type[Settings], values: Mapping[str, Any], head: str) -> Settings:
    """Build a settings dataclass from plain values.

    Parameters
    ----------
    kind : type. Dataclass with fields declared by `setting`, `numbers`, `choice` and `text`.
    values : mapping. Differences from the defaults, as in JSON or YAML: a list for a tuple.
    head : str. Name of the head, for messages.

    Raises
    ------
    HeadError
        A name is unknown (the known ones are listed), or a value has a wrong type or range.
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
    """Return the value of a setting, converted to its type; raise if it is invalid."""
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
            + (" (YAML reads 1e-4 as text; write 1.0e-4 or 0.0001)" if yaml else "")
        ) from error
    return made


def _renamed(name: object, known: Container[str]) -> str:
    """Return a hint at the new name of a renamed setting, for a message; "" for other names."""
    return "".join(f" ({name} is now {new})" for new in _RENAMED.get(str(name), ()) if new in known)
