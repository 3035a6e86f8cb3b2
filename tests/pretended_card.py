"""A torch device that is none: its tensors are in memory, but fail where those of a card would.

numpy cannot read them, and an operation on tensors of two devices fails, apart from scalars and
`_OF_TWO_DEVICES`. Its name is "meta", which every torch accepts without further hardware.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "meta"
_PACK = "aten::_pack_padded_sequence"
_OF_TWO_DEVICES = (
    "aten::copy_", "aten::_to_copy", "aten::index", "aten::index_put_", "aten::_index_put_impl_",
    # Their lengths, or numbers of rows, are on the CPU.
    _PACK, "aten::_pad_packed_sequence", "aten::gru", "aten::lstm",
)  # fmt: skip


class _OnCard(Tensor):
    """A tensor on the card, whose numbers are those of `held`."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "_OnCard":
        made: _OnCard = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, device=torch.device(NAME),
        )  # fmt: skip
        made.held = held
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _computed(func, args, kwargs or {})


class _Pretence(TorchDispatchMode):
    """Also sees operations without a tensor of the card, such as `torch.zeros(3, device=NAME)`."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _computed(func, args, kwargs or {})


def _computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    on_card = [tensor for tensor in tensors if isinstance(tensor, _OnCard)]
    there = bool(on_card)
    if there and func._schema.name not in _OF_TWO_DEVICES:
        for tensor in tensors:
            if tensor.dim() and not isinstance(tensor, _OnCard):
                raise RuntimeError(
                    f"{func}: all tensors have to be on the card, but one of shape "
                    f"{tuple(tensor.shape)} is on the CPU"
                )
    if (device := kwargs.get("device")) is not None:
        there = torch.device(device).type == NAME
        kwargs = {**kwargs, "device": torch.device("cpu")}
    elif func._schema.name == "aten::copy_":
        there = isinstance(args[0], _OnCard)
    args, kwargs = tree_map(lambda x: x.held if isinstance(x, _OnCard) else x, (args, kwargs))
    # An operation in place returns the tensor that it was given.
    given = {id(tensor.held): tensor for tensor in on_card}

    def sent(found: Any) -> Any:
        if not there or not isinstance(found, Tensor):
            return found
        return given[id(found)] if id(found) in given else _OnCard(found)

    found = func(*args, **kwargs)
    # torch cannot make views of a wrapper that is an inference tensor.
    with torch.inference_mode(False):
        if func._schema.name == _PACK:
            return sent(found[0]), found[1]
        return tree_map(sent, found)


@contextmanager
def pretended_card() -> Iterator[str]:
    """Yield the name of a device, which exists meanwhile."""
    with _Pretence():
        yield NAME
