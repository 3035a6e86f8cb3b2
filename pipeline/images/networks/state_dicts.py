"""State dicts: loaded from files, compared by name and shape, hashed."""

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pipeline.images.networks import WeightsError


@dataclass(frozen=True)
class Weights:
    """Weights of a network."""

    name: str
    """As in the shards: "torchvision:VGG19_Weights.IMAGENET1K_V1", "file:mine.pth", "random:0"."""
    sha256: str
    """Of the file; for random weights and those that a library downloads, of the state."""
    state: dict[str, Tensor]  # complete, float32


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Load names and tensors of a `.pth`, `.pt`, `.bin` or `.safetensors` file, without pickles.

    A state dict under the key "state_dict" is unwrapped.
    """
    try:
        state = load_file(path) if path.suffix == ".safetensors" else _unpickled(path)
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise WeightsError(
            f"{path} cannot be read as a state dict ({_first_line(error)}); expected a file of "
            "torch.save(model.state_dict()) or safetensors"
        ) from error
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} contains more than tensors, or is not a torch file; only plain state dicts "
            "are supported: save it again with torch.save(model.state_dict(), ...)"
        ) from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(map(_is_named_tensor, state.items())):
        raise WeightsError(
            f"{path} is not a plain state dict (a {type(state).__name__} that does not map names "
            "to tensors); save it again with torch.save(model.state_dict(), ...)"
        )
    return state


def require_fit(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path, name: str
) -> None:
    """Raise if names or shapes of the tensors in `path` differ from those of the network `name`."""
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
            f"{'; '.join(faults[:5])}; pass the weights of that network"
        )


def state_sha256(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 (64 hex digits) of weights without a file: names, shapes, bytes."""
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(f"{key} {tuple(state[key].shape)} ".encode())
        digest.update(state[key].numpy().tobytes())
    return digest.hexdigest()


def _unpickled(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError, pickle.UnpicklingError):
        raise
    # torch's reader raises any exception over a damaged file.
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
