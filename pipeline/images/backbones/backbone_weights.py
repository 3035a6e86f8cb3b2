"""State dicts of image networks from files in all supported layouts."""

import re
import tarfile
import zlib
from pathlib import Path

import torch
from torch import Tensor

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.backbones.caffemodel import read_caffemodel
from pipeline.images.backbones.keras_model import from_keras, read_tensorflowjs_package
from pipeline.images.networks import WeightsError
from pipeline.images.networks.state_dicts import read_tensors, require_fit


def read_state_dict(path: Path, backbone: Backbone, name: str) -> dict[str, Tensor]:
    """Return a complete float32 state dict of a network, read from a file in any supported layout.

    Supported layouts of a `.pth`, `.pt` or `.safetensors` file:

    - the network's own names (torchvision's, timm's) to tensors;
    - the same under the key "state_dict", among other keys;
    - names with `module.` in them, from `DataParallel`;
    - VGG under Caffe's names (`conv1_1.weight`, `fc6.weight`), or under those of torchvision
      before 2017 (`classifier.1` for fc6, `classifier.4` for fc7), as in Johnson's conversions of
      Oxford's files;
    - fully connected weights in the shape of a convolution, (4096, 512, 7, 7);
    - Keras's names and layouts (`conv1/kernel`, (height, width, in, out));
    - without counters of training steps, as in old files.

    A `.caffemodel` is read as its layers' blobs, a `.tgz` as an npm package with a model of
    TensorFlow.js.
    """
    expected = backbone.outline().state_dict()
    state = {}
    for key, value in from_keras(_read_tensors(path)).items():
        target = key if key in expected else _target_name(key, backbone)
        if target.startswith(backbone.heads):
            continue
        if target in state:
            raise WeightsError(f"{path} has {target} of {name} twice, once as {key}")
        state[target] = value
    state = backbone.merge(state)
    for key, value in expected.items():
        if key.endswith("num_batches_tracked"):
            state.setdefault(key, torch.zeros((), dtype=torch.long))
        elif key in state and value.ndim == 2 and state[key].ndim == 4:
            state[key] = state[key].flatten(1)
        elif key in state and value.ndim == 1:
            state[key] = state[key].flatten()
    require_fit(state, expected, path, name)
    # Packaged tensors have other strides than a network's own.
    return {
        key: state[key].float().contiguous() if value.is_floating_point() else state[key]
        for key, value in expected.items()
    }


def _target_name(key: str, backbone: Backbone) -> str:
    layer, _, parameter = re.sub(r"(^|\.)module\.", r"\1", key).rpartition(".")
    layer = backbone.layer_names.get(layer, layer)
    return f"{layer}.{parameter}" if layer else parameter


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".tgz":
        try:
            return read_tensorflowjs_package(path)
        except (OSError, EOFError, tarfile.TarError, zlib.error, WeightsError) as error:
            raise WeightsError(
                f"{path} cannot be read as an npm package with a model of TensorFlow.js: {error}"
            ) from error
    if path.suffix != ".caffemodel":
        return read_tensors(path)
    try:
        return read_caffemodel(path)
    except (OSError, ValueError, WeightsError) as error:
        raise WeightsError(f"{path} cannot be read as a .caffemodel: {error}") from error
