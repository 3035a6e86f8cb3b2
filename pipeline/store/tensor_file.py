"""Files of named arrays with metadata: safetensors with one JSON text, no pickle."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save

from pipeline.store.files import appearing_whole, parse_json
from pipeline.store.hashing import canonical_json


def write_tensors(
    path: Path, tensors: Mapping[str, npt.NDArray[Any]], key: str, metadata: Mapping[str, Any]
) -> None:
    """Write a `.safetensors` file atomically; equal contents have equal bytes.

    Arrays have any shape and memory order, and a dtype of safetensors.
    """
    # One metadata entry, since safetensors writes several in random order.
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    with appearing_whole(path) as part:
        # Not save_file: it writes through a temporary file of its own, with its own mode.
        part.write_bytes(save(arrays, {key: canonical_json(metadata)}))


def read_metadata(path: Path, key: str) -> dict[str, Any]:
    """Return the metadata of a file that `write_tensors` wrote.

    A damaged file raises SafetensorError, KeyError, TypeError or ValueError; the caller states what
    was expected.
    """
    with safe_open(path, framework="numpy") as file:
        metadata = parse_json(file.metadata()[key])
    if not isinstance(metadata, dict):
        raise TypeError(f"its metadata are {metadata!r}")
    return metadata


def read_tensors(path: Path, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """Load the named arrays of a `.safetensors` file into memory; raises as `read_metadata`."""
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in names}
