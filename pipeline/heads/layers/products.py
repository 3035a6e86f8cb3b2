"""Matrix products of a network's layers in bfloat16 during training; all else stays in float32.

Weights, biases, activations, normalisations, embeddings, scores and losses are float32. The factors
of a linear map or of a recurrent network are rounded to bfloat16 (8 bits of the mantissa), their
products are summed in float32, and the result is rounded once; gradients are computed in the same
way.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_in_bf16: ContextVar[bool] = ContextVar("in_bf16", default=False)

# Recurrent networks of torch run on a GPU; on a processor `layers.recurrence` has its own.
_LAYERS = (F.linear, torch.gru, torch.lstm)


def as_factor(weight: Tensor) -> Tensor:
    """Return a weight as the factor of a product: unchanged, or rounded to bfloat16."""
    return weight.bfloat16() if _in_bf16.get() else weight


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Return a context in which the products of layers are computed in "float32" or "bf16"."""
    if precision == "float32":
        yield
        return
    before = _in_bf16.set(True)
    try:
        with _Bfloat16Layers():
            yield
    finally:
        _in_bf16.reset(before)


class _Bfloat16Layers(TorchFunctionMode):
    """Runs layers under torch's autocast, and returns their output as float32."""

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # Within an autocast, as that of an image network, its rules hold.
        if func not in _LAYERS or torch.is_autocast_enabled(args[0].device.type):
            return func(*args, **(kwargs or {}))
        with torch.autocast(args[0].device.type, torch.bfloat16):
            result = func(*args, **(kwargs or {}))
        return tuple(one.float() for one in result) if isinstance(result, tuple) else result.float()
