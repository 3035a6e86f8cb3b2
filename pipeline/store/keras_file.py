"""Weights that Keras saved in HDF5, alone or with their model, also before its version 2."""

from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np

from pipeline.store.errors import PipelineError
from pipeline.store.files import require_held
from pipeline.store.guard import crash_of
from pipeline.store.own_files import reading


def read_keras_file(path: Path, error: type[PipelineError]) -> dict[str, np.ndarray]:
    """Return the weights, float32, by "<layer>/<weight>", after another process has read them."""
    remedy = "copy it again, or save it with model.save('model.h5')"
    if reason := crash_of(_weights, path):
        raise error(f"{path} is damaged: HDF5 {reason}; {remedy}")
    with reading(path, "a file of weights that Keras saved in HDF5", remedy, error):
        return _weights(path)


def _weights(path: Path) -> dict[str, np.ndarray]:
    weights: dict[str, np.ndarray] = {}

    def add(place: str, item: h5py.Group | h5py.Dataset) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.is_virtual or item.external:
            raise ValueError(f"{place} is stored in another file")
        *groups, weight = place.split("/")
        if not groups:
            raise ValueError(f"{place} is in no group of a layer")
        # conv1/conv1_W:0, conv1/conv1/kernel:0, or a second model in a session of TensorFlow:
        # conv1/conv1_1/kernel:0. The layers of a model within a model are in one group.
        layer = next((a for a, b in pairwise([*groups, weight]) if b.startswith(a)), groups[-1])
        name = f"{layer}/{weight.removesuffix(':0').removeprefix(f'{layer}_')}"
        if name in weights:
            raise ValueError(f"it has {name} twice, once as {place}")
        weights[name] = require_held(item)[()].astype(np.float32)

    with h5py.File(path, "r") as file:
        file.get("model_weights", file).visititems(add)
    if not weights:
        raise ValueError("it has no weights")
    return weights
