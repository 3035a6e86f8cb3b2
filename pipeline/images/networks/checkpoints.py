"""Checkpoints: files and folders of tensors, read without running code of theirs."""

import json
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch._utils import _rebuild_parameter, _rebuild_tensor, _rebuild_tensor_v2

from pipeline.images.networks import WeightsError
from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.own_files import require_downloaded

State = dict[str, Tensor]

# Of `save_pretrained` in timm and transformers; the safe format first.
_IN_FOLDERS = ("model.safetensors", "pytorch_model.bin")
# Levels of mappings with state dicts, as in {"model": {"ema": {...}}}.
_LEVELS = 3


def read_checkpoint(path: Path) -> dict[str, State]:
    """Return the state dicts of a file or folder by the keys that lead to them, as "model."."""
    files = weight_files(path)
    for file in files:
        require_downloaded(file, WeightsError)
    try:
        parts = [dict(_state_dicts(_loaded(file), "", _LEVELS)) for file in files]
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise WeightsError(
            f"{path} cannot be read as a state dict ({_first_line(error)}); expected a file of "
            "torch.save(model.state_dict()) or safetensors"
        ) from error
    if len(parts) > 1:
        return {"": {key: value for part in parts for key, value in part.get("", {}).items()}}
    return parts[0]


def weight_files(path: Path) -> list[Path]:
    """Return the files with the weights: the path itself, or those of a folder."""
    if not path.is_dir():
        return [path]
    for name in _IN_FOLDERS:
        index = path / f"{name}.index.json"
        if (path / name).is_file():
            return [path / name]
        if index.is_file():
            try:
                names = sorted({*json.loads(index.read_bytes())["weight_map"].values()})
                # Without folders: an index names no file elsewhere.
                shards = [path / Path(name).name for name in names]
                return [shard for shard in shards if shard.stat()]
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise WeightsError(
                    f"{index} does not index the shards in its folder ({_first_line(error)}); copy "
                    "the folder again"
                ) from error
    raise WeightsError(
        f"{path} has neither {' nor '.join(_IN_FOLDERS)}, nor an index of such; pass a file"
    )


def sha256_of_weights(path: Path) -> str:
    """Return the SHA-256 of a file, or of the list of those of shards."""
    hashes = [sha256_of_file(file) for file in weight_files(path)]
    return hashes[0] if len(hashes) == 1 else sha256_of_json(hashes)


def _state_dicts(value: Any, keys: str, levels: int) -> Iterator[tuple[str, State]]:
    if not isinstance(value, dict):
        return
    named = {key: each for key, each in dict.items(value) if isinstance(key, str)}
    if state := {key: each for key, each in named.items() if _is_plain_tensor(each)}:
        yield keys, state
    if levels > 1:
        for key, each in named.items():
            yield from _state_dicts(each, f"{keys}{key}.", levels - 1)


def _is_plain_tensor(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and not (value.is_meta or value.is_quantized or value.is_complex())
        and value.layout is torch.strided
    )


def _loaded(file: Path) -> Any:
    if file.suffix == ".safetensors":
        return load_file(file)
    try:
        try:
            with warnings.catch_warnings(action="ignore"):  # of other protocols of pickle
                return torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            # Objects of classes next to the tensors, such as timm's argparse.Namespace.
            return torch.load(file, "cpu", pickle_module=_TENSORS_ONLY, weights_only=False)
    except (OSError, MemoryError):
        raise
    # torch's reader raises any exception over a damaged file.
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {_first_line(error)}") from error


class _Inert:
    """In place of an object of an unknown class; drops all that the file stores in it."""

    def __new__(cls, *arguments: Any, **options: Any) -> "_Inert":
        return super().__new__(cls)

    def _drop(self, *arguments: Any, **options: Any) -> None:
        pass

    __init__ = __setstate__ = __setitem__ = append = extend = add = _drop


_BUILDING = {
    (each.__module__, each.__name__): each
    for each in (OrderedDict, _rebuild_parameter, _rebuild_tensor, _rebuild_tensor_v2)
}


class _Unpickler(pickle.Unpickler):
    """Builds plain containers and tensors, whose storages torch reads."""

    # Whatever a pickle calls or builds is looked up here, so nothing else can run.
    def find_class(self, module: str, name: str) -> Any:
        return _BUILDING.get((module, name), _Inert)


_TENSORS_ONLY = SimpleNamespace(
    __name__=__name__,
    Unpickler=_Unpickler,
    load=lambda file, **options: _Unpickler(file, **options).load(),
)
"""What `torch.load` uses of the module pickle."""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
