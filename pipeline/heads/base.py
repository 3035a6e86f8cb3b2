"""The protocol of a head, the options of a fit, and the declaration of a head's settings."""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

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
    """Options of one fit, apart from settings and data."""

    seed: int  # of all random numbers
    progress: Progress = no_progress  # called with the epochs done, their total number, and 0
    work: Path | None = None  # checkpoint folder; None: no checkpoints
    workers: int = 0  # prefetch processes; 0: batches are loaded in this one; results are the same
    device: str = "cpu"  # torch device for training
    # Word vectors (vocab_size, d) by token id, NaN rows for unknown ones; None: random
    # initialisation.
    words: Features | None = None
    # Tensors of a trained head of the same architecture, from which training continues.
    start: Mapping[str, torch.Tensor] | None = None
    # "float32" or "bf16", for the products of layers; see `layers.products`.
    precision: str = "float32"
    log: Callable[[str], None] = QUIET.log  # called with one line per remark on the data


class Head(Protocol):
    """A projection head: fitted on pairs, it embeds images and captions in one space.

    Implement it for a closed form, and register it by a `HeadKind`. A trained network needs only a
    `pipeline.heads.training.task.TrainingTask`, which `pipeline.heads.training.trainer.NetworkHead`
    turns into a head. `TrainedHead.image` and `caption` need one more method, `towers`, which
    returns an `nn.ModuleDict` of the fitted modules "image" and "caption", from rows to embeddings.
    """

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
    """Return the modules of a head; raise HeadError if it is not fitted."""
    if net is None:
        raise HeadError("this head is not fitted; call fit, or load a trained head")
    return net


@torch.inference_mode()
def embed_rows(module: nn.Module, rows: Rows, device: torch.device) -> Features:
    """Return (n, ...) float32, the output of a module in evaluation mode for n >= 1 rows."""
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
    """Return `HeldOut.figures` of a split under a network; `images` replaces its image features."""
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
    """Registry entry of a head; each architecture module exports one as `HEAD`."""

    settings: type[Any]  # dataclass with fields declared by `setting`, `numbers`, `choice`, `text`
    # Unfitted head from settings and feature specs of both sides; HeadError for unsupported
    # features.
    make: Callable[[Any, HeadInputs], Head]


Settings = TypeVar("Settings")
Value = TypeVar("Value", int, float, bool, tuple[int, ...])


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
    """Return a settings dataclass with some values, as in JSON; raise HeadError for wrong ones."""
    declared = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := [name for name in values if name not in declared]:
        raise HeadError(
            f"head {head!r} has no setting {', '.join(map(repr, unknown))}"
            + "; it has "
            + ", ".join(f"{name} ({f.default})" for name, f in declared.items())
        )
    return kind(**{name: _checked(declared[name], value, head) for name, value in values.items()})


def _checked(declared: Field[Any], value: Any, head: str) -> Any:
    """Return the value of a setting, converted to its type; raise if it is invalid."""
    default, kind = declared.default, declared.metadata["type"]
    try:
        converted = convert([*value] if isinstance(value, tuple) else value, kind)
        items = converted if isinstance(converted, tuple) else (converted,)
        if any(isinstance(one, float) and not math.isfinite(one) for one in items):
            raise SchemaError(f"Expected a finite number, found {value}")
        if all(isinstance(one, int) for one in items) and [*items] != sorted(items):
            raise SchemaError(f"Expected ascending numbers, found {value}")
    except SchemaError as error:
        yaml = isinstance(value, str) and isinstance(default, float)
        raise HeadError(
            f"head {head!r}: setting {declared.name}: {error}; its default is {default!r}"
            + (" (YAML reads 1e-4 as text; write 1.0e-4 or 0.0001)" if yaml else "")
        ) from error
    return converted
