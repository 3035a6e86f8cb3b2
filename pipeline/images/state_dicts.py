"""State dicts from files: the layouts that are known, checked by name and shape."""

import hashlib
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pipeline.errors import PipelineError
from pipeline.images.backbone import Backbone
from pipeline.images.caffemodel import CaffeModelError, read_caffemodel


class WeightsError(PipelineError):
    """Weights cannot be had, cannot be read, or belong to another network."""


def read_state_dict(path: Path, backbone: Backbone, name: str) -> dict[str, Tensor]:
    """Read a network's weights from a file.

    Known layouts of a `.pth`, `.pt` or `.safetensors` file:

    - names to tensors, the names those of the network (torchvision's, timm's);
    - the same under the key "state_dict", whatever stands beside it;
    - names with `module.` in them, as `DataParallel` makes them;
    - VGG under Caffe's names (`conv1_1.weight`, `fc6.weight`), or under those of torchvision
      before 2017 (`classifier.1` for fc6, `classifier.4` for fc7), which Johnson's conversions of
      Oxford's files have;
    - fully connected weights in the shape of a convolution, (4096, 512, 7, 7);
    - without counters of training steps, as old files are.

    A `.caffemodel` is read as its layers' blobs.

    Parameters
    ----------
    path : the file.
    backbone : the network that must fit.
    name : of the backbone, for messages.

    Returns
    -------
    dict[str, Tensor]
        All that the network has, in float32.

    Raises
    ------
    WeightsError
        The file cannot be read or does not fit; the first keys that differ are named.
    """
    with torch.device("meta"):
        expected = backbone.build().state_dict()
    state = {}
    for key, value in _read_tensors(path).items():
        own = key if key in expected else _own_name(key, backbone)
        if own.startswith(backbone.heads):
            continue
        if own in state:
            raise WeightsError(f"{path} has {own} of {name} twice, once as {key}")
        state[own] = value
    for key, value in expected.items():
        if key.endswith("num_batches_tracked"):
            state.setdefault(key, torch.zeros((), dtype=torch.long))
        elif key in state and value.ndim == 2 and state[key].ndim == 4:
            state[key] = state[key].flatten(1)
    faults = [f"{key} is missing" for key in expected if key not in state]
    faults += [f"{key} is not part of {name}" for key in state if key not in expected]
    faults += [
        f"{key} has shape {tuple(state[key].shape)}, not {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    if faults:
        raise WeightsError(
            f"{path} does not fit {name}: {len(faults)} keys differ, first "
            f"{'; '.join(faults[:5])}; give the weights of that very network"
        )
    # The packaged tensors are stored with other strides than a network's own.
    return {
        key: state[key].float().contiguous() if value.is_floating_point() else state[key]
        for key, value in expected.items()
    }


def state_sha256(state: dict[str, Tensor]) -> str:
    """Return the SHA-256 (64 hex digits) of weights that are in no file: names, shapes, bytes."""
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(f"{key} {tuple(state[key].shape)} ".encode())
        digest.update(state[key].numpy().tobytes())
    return digest.hexdigest()


def _own_name(key: str, backbone: Backbone) -> str:
    layer, _, parameter = re.sub(r"(^|\.)module\.", r"\1", key).rpartition(".")
    layer = backbone.layer_names.get(layer, layer)
    return f"{layer}.{parameter}" if layer else parameter


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if path.suffix == ".caffemodel":
            return read_caffemodel(path)
        state = _unpickled(path)
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise WeightsError(
            f"{path} cannot be read as a state dict ({_first_line(error)}); expected what "
            "torch.save(model.state_dict()) or safetensors writes"
        ) from error
    except CaffeModelError as error:
        raise WeightsError(f"{path} cannot be read as a .caffemodel: {error}") from error
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} holds more than tensors, or is no torch file; only plain state dicts are "
            "read: save it again with torch.save(model.state_dict(), ...)"
        ) from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(map(_is_named_tensor, state.items())):
        raise WeightsError(
            f"{path} holds no plain state dict (a {type(state).__name__} that is not names to "
            "tensors); save it again with torch.save(model.state_dict(), ...)"
        )
    return state


def _unpickled(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError, pickle.UnpicklingError):
        raise
    # torch's reader raises whatever it stumbles over in a damaged file.
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {_first_line(error)}") from error


def _is_named_tensor(item: tuple[Any, Any]) -> bool:
    name, value = item
    return (
        isinstance(name, str)
        and isinstance(value, Tensor)
        and not (value.is_meta or value.is_quantized or value.is_complex())
        and value.layout is torch.strided
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
