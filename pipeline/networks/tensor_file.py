"""One file of named arrays and their metadata: safetensors with one JSON text, no pickle."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save

from pipeline.files import appearing_whole, parse_json
from pipeline.hashing import canonical_json


def write_tensors(
    path: Path, tensors: Mapping[str, npt.NDArray[Any]], key: str, metadata: Mapping[str, Any]
) -> None:
    """Write a `.safetensors` file, whole or not at all; equal contents give equal bytes.

    Parameters
    ----------
    path : of the file.
    tensors : arrays of any shape and memory order, of a type that safetensors has.
    key : the one entry of the file's metadata. There is only one, since safetensors writes several
        in no fixed order.
    metadata : JSON values, the entry's text.
    """
    own = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    with appearing_whole(path) as part:
        # Not save_file: it writes through a private file of its own, with its own mode.
        part.write_bytes(save(own, {key: canonical_json(metadata)}))


def read_metadata(path: Path, key: str) -> dict[str, Any]:
    """Return the metadata of a file that `write_tensors` wrote.

    Raises
    ------
    SafetensorError, KeyError, TypeError, ValueError
        It is no such file, or it is damaged: for the caller to say what it should be.
    """
    with safe_open(path, framework="numpy") as file:
        metadata = parse_json(file.metadata()[key])
    if not isinstance(metadata, dict):
        raise TypeError(f"its metadata are {metadata!r}")
    return metadata


def read_tensors(path: Path, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named arrays of a `.safetensors` file, in memory.

    Raises
    ------
    SafetensorError, KeyError, TypeError, ValueError
        As `read_metadata`.
    """
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in names}
