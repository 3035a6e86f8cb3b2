"""Xception against Keras's definition in functions of torch, and Keras's files of its weights."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms import v2

from pipeline.images import weights
from pipeline.images.backbones import xception
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import RECIPES, resolve_recipe
from pipeline.images.transforms import windows_of
from pipeline.images.weights import WeightsError, load_weights
from pipeline.store import keras_file
from pipeline.store.jobs.options import ENGINES
from tests.images.odd_files import photo

POOL = RECIPES["xception-pool"]
FULL = (*((128, 128), (256, 256), (728, 728)), *8 * [(728, 728, 728)], (728, 1024), (1536, 2048))
NARROW = (*((12, 10), (16, 16), (24, 20)), *8 * [(20, 20, 20)], (24, 32), (48, 2048))
Tensors = dict[str, Tensor]

# Keras's network, by its layers' names.


def same(x: Tensor, kernel: int, stride: int, value: float = 0.0) -> Tensor:
    """Pad as TensorFlow does: so that every stride has a window, and one more at the end if odd."""
    padding: list[int] = []
    for side in (x.shape[3], x.shape[2]):
        total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        padding += [total // 2, total - total // 2]
    return F.pad(x, padding, value=value)


class Keras:
    """Weights by "<layer>/<weight>", made when first used: the layers' order is Keras's own."""

    def __init__(self, tensors: Tensors | None = None) -> None:
        self.tensors, self._rng = {} if tensors is None else tensors, np.random.default_rng(0)

    def weight(self, name: str, *shape: int, scale: float = 0.1, around: float = 0.0) -> Tensor:
        if name not in self.tensors:
            values = self._rng.standard_normal(shape, np.float32) * scale + around
            self.tensors[name] = torch.from_numpy(values.astype(np.float32))
        return self.tensors[name]

    def conv(self, x: Tensor, name: str, width: int, kernel: int, stride: int) -> Tensor:
        channels, scale = x.shape[1], (2 / kernel**2 / x.shape[1]) ** 0.5
        w = self.weight(f"{name}/kernel", kernel, kernel, channels, width, scale=scale)
        return F.conv2d(x, w.permute(3, 2, 0, 1), stride=stride)

    def separable(self, x: Tensor, name: str, width: int) -> Tensor:
        channels = x.shape[1]
        d = self.weight(f"{name}/depthwise_kernel", 3, 3, channels, 1, scale=0.5)
        p = self.weight(f"{name}/pointwise_kernel", 1, 1, channels, width, scale=channels**-0.5)
        x = F.conv2d(same(x, 3, 1), d.permute(2, 3, 0, 1), groups=channels)
        return torch.einsum("nchw,cd->ndhw", x, p[0, 0])

    def norm(self, x: Tensor, name: str, size: float = 1.0) -> Tensor:
        around = {"gamma": size, "beta": 0.0, "moving_mean": 0.0, "moving_variance": 1.0}
        gamma, beta, mean, variance = (
            self.weight(f"{name}/{key}", x.shape[1], around=value).view(-1, 1, 1)
            for key, value in around.items()
        )
        return (x - mean) / (variance.abs() + 1e-3).sqrt() * gamma + beta

    def map(self, x: Tensor, widths: tuple[tuple[int, ...], ...]) -> Tensor:
        """Return the last map (n, channels, h, w) of (n, 3, h, w) pixels from -1 to 1."""
        for number, (width, stride) in enumerate(((32, 2), (64, 1)), 1):
            x = self.conv(x, f"block1_conv{number}", width, 3, stride)
            x = self.norm(x, f"block1_conv{number}_bn").clamp(min=0)
        shortcuts = iter(range(1, 5))
        for block, each in enumerate(widths, 2):
            kept = x
            if block in (2, 3, 4, 13):
                number = next(shortcuts)
                kept = self.conv(x, f"conv2d_{number}", each[-1], 1, 2)
                kept = self.norm(kept, f"batch_normalization_{number}")
            for number, width in enumerate(each, 1):
                if number > 1 or block not in (2, 14):
                    x = x.clamp(min=0)
                x = self.separable(x, f"block{block}_sepconv{number}", width)
                size = 0.2 if 5 <= block <= 12 and number == 3 else 1.0
                x = self.norm(x, f"block{block}_sepconv{number}_bn", size)
            if block in (2, 3, 4, 13):
                padded = same(x, 3, 2, -float("inf"))
                x = padded.unfold(2, 3, 2).unfold(3, 3, 2).amax((4, 5))
            x = x + kept if block < 14 else x.clamp(min=0)
        return x


def pixels(images: list[Image.Image]) -> Tensor:
    arrays = np.stack([np.asarray(image) for image in images]).astype(np.float32)
    return torch.from_numpy(arrays / 127.5 - 1).permute(0, 3, 1, 2)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xception, "_WIDTHS", NARROW[:-1])
    monkeypatch.setattr(xception, "_LAST", NARROW[-1])


@pytest.fixture(scope="module")
def file() -> Tensors:
    """Narrow weights by Keras's names."""
    keras = Keras()
    keras.map(torch.zeros(1, 3, 96, 96), NARROW)
    return keras.tensors


def rows(name: str, path: Path, images: list[Image.Image], engine: str) -> Tensor:
    recipe = resolve_recipe(name)
    network = RecipeNetwork(recipe, load_weights(recipe, str(path)).state, engine=engine)
    windows = [windows_of(image, recipe.resize, network.window) for image in images]
    return network(torch.from_numpy(np.stack(windows)))


def relative(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).norm() / b.norm())


PHOTOS = [photo(seed, *size) for seed, size in enumerate([(333, 500), (640, 427), (91, 120)])]


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("engine", ENGINES)
@torch.inference_mode()
def test_each_size_is_padded_as_tensorflow_pads(engine: str, file: Tensors, tmp_path: Path) -> None:
    """At 299 three of the four pooled maps have odd sides, at multiples of 32 the first two."""
    path = dotted(file, tmp_path)
    for size, name in {299: "", 64: "-64", 320: "-320"}.items():
        squashed = [image.resize((size, size), Image.Resampling.BILINEAR) for image in PHOTOS]
        expected = Keras(file).map(pixels(squashed), NARROW)
        assert expected.shape[2:] == (-(-size // 32), -(-size // 32))
        found = rows(f"xception-grid{name}", path, PHOTOS, engine)
        assert relative(found, expected.permute(0, 2, 3, 1)) < 1e-5
    pooled = rows("xception-pool-320", path, PHOTOS[:1], engine)
    assert relative(pooled, expected[:1].mean((2, 3))) < 1e-5
    crops = v2.TenCrop(299)(PHOTOS[0].resize((341, 341), Image.Resampling.BILINEAR))
    expected = Keras(file).map(pixels(list(crops)), NARROW).mean((0, 2, 3))
    assert relative(rows("xception-pool-10crop", path, PHOTOS[:1], engine)[0], expected) < 1e-5


@pytest.mark.slow
@torch.inference_mode()
def test_the_network_in_full(tmp_path: Path) -> None:
    keras = Keras()
    squashed = [image.resize((299, 299), Image.Resampling.BILINEAR) for image in PHOTOS[:2]]
    expected = keras.map(pixels(squashed), FULL)
    assert expected.shape == (2, 2048, 10, 10)
    assert sum(tensor.numel() for tensor in keras.tensors.values()) == 20_861_480
    path = dotted(keras.tensors, tmp_path)
    for engine in ENGINES:
        found = rows("xception-grid", path, PHOTOS[:2], engine)
        assert relative(found, expected.permute(0, 2, 3, 1)) < 1e-5


# Files of weights.


def dotted(file: Tensors, folder: Path) -> Path:
    """Write safetensors with a dot before the weight's name, and numbers from 0."""
    tensors = {key.replace("/", "."): value for key, value in file.items()}
    for number in range(1, 5):
        for kind in ("conv2d", "batch_normalization"):
            for key in [key for key in tensors if key.startswith(f"{kind}_{number}.")]:
                less = f"{kind}_{number - 1}" if number > 1 else kind
                tensors[key.replace(f"{kind}_{number}", less)] = tensors.pop(key)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "w.safetensors")
    return folder / "w.safetensors"


def by_layer(file: Tensors) -> Iterator[tuple[str, str, Tensor]]:
    for key, value in file.items():
        yield *key.split("/"), value  # type: ignore[misc]


def before_version_2(file: Tensors) -> Tensors:
    """Return the names of Keras's own file: every layer by its kind and number."""
    leaves = {"kernel": "W", "moving_mean": "running_mean", "moving_variance": "running_std"}
    numbers: dict[str, list[str]] = {}
    found = {}
    for layer, weight, value in by_layer(file):
        bare = weight.removesuffix("_kernel")
        kind = {"kernel": "convolution2d"}.get(weight, "batchnormalization")
        kind = "separableconvolution2d" if bare != weight else kind
        known = numbers.setdefault(kind, [])
        known += [] if layer in known else [layer]
        name = f"{kind}_{known.index(layer) + 1}"
        found[f"{name}/{name}_{leaves.get(weight, weight)}:0"] = value
    return found


TOP = {"kernel": torch.ones(2048, 1000), "bias": torch.ones(1000)}
OLD_TOP = {"dense_2/dense_2_W:0": TOP["kernel"], "dense_2/dense_2_b:0": TOP["bias"]}
H5 = {
    "Keras's own": before_version_2,
    "Keras's own, with its top": lambda file: before_version_2(file) | OLD_TOP,
    "version 2": lambda file: {f"{a}/{a}/{w}:0": value for a, w, value in by_layer(file)},
    "a second model of a session": lambda file: {
        f"{a}/{a}_1/{w}:0": value for a, w, value in by_layer(file)
    },
    "with its top": lambda file: {
        **{f"{a}/{a}/{w}:0": value for a, w, value in by_layer(file)},
        **{f"predictions/predictions/{weight}:0": value for weight, value in TOP.items()},
    },
    "with an optimizer": lambda file: {
        **{f"model_weights/{a}/{a}/{w}": value for a, w, value in by_layer(file)},
        "optimizer_weights/adam/iteration": torch.ones(()),
    },
    "within another model": lambda file: {
        **{f"model_weights/xception/{key}": value for key, value in file.items()},
        "model_weights/dense_1/dense_1/kernel": torch.ones(2048, 5),
    },
}


def written(tensors: Tensors, path: Path) -> Path:
    with h5py.File(path, "w") as stream:
        for name, value in tensors.items():
            stream[name] = value.numpy()
    return path


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("layout", H5)
def test_layouts_of_keras(layout: str, file: Tensors, tmp_path: Path) -> None:
    expected = load_weights(POOL, str(dotted(file, tmp_path))).state
    found = load_weights(POOL, str(written(H5[layout](file), tmp_path / "w.h5")))
    assert found.name == "file:w.h5"
    assert list(found.state) == list(expected)
    assert all(torch.equal(value, expected[key]) for key, value in found.state.items())
    torch.save(found.state, tmp_path / "w.pth")
    again = load_weights(POOL, str(tmp_path / "w.pth")).state
    assert all(torch.equal(value, expected[key]) for key, value in again.items())


@pytest.mark.usefixtures("narrow")
def test_files_that_do_not_fit_are_refused(file: Tensors, tmp_path: Path) -> None:
    path = tmp_path / "w.h5"
    own = before_version_2(file)
    del own["convolution2d_4/convolution2d_4_W:0"]
    changes: list[tuple[Tensors, str]] = [
        (own, "does not fit xception: .* missing: block1.conv1.weight"),
        (file | {"block2_sepconv1/pointwise_kernel": torch.ones(1, 1, 9, 9)},
         r"block2\.branch\.sepconv1\.pointwise\.weight \(9, 9, 1, 1\), expected \(12, 64, 1, 1\)"),
        (file | {"block9/se/kernel": torch.ones(1, 1)}, "1 not in the network: se.weight"),
        (file | {"a/conv2d_1/kernel": torch.ones(1)}, "conv2d_1/kernel twice, once as"),
        ({"layers/conv2d/vars/0": torch.ones(2), "layers/conv2d_1/vars/0": torch.ones(2)},
         r"vars/0 twice, once as .*; copy it again, or save it with model\.save\('model\.h5'\)"),
        ({"features": torch.ones(3, 4)}, "features is in no group of a layer"),
        ({}, "it has no weights"),
    ]  # fmt: skip
    for tensors, message in changes:
        with pytest.raises(WeightsError, match=message):
            load_weights(POOL, str(written(tensors, path)))


def test_damaged_files_are_refused(
    file: Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(file, tmp_path / "w.h5")
    whole = path.read_bytes()
    for content in (b"", b"<html>not here</html>", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(WeightsError, match=r"w\.h5 is damaged or not a file of weights that K"):
            load_weights(POOL, str(path))
    with h5py.File(path, "w") as stream:
        stream.create_dataset("conv2d/kernel", (1 << 20, 1 << 20), "f4", chunks=(1024, 1024))
    with pytest.raises(WeightsError, match="conv2d/kernel claims 4,398,046,511,104 bytes"):
        load_weights(POOL, str(path))
    with h5py.File(path, "w") as stream:
        stream.create_dataset("conv2d/kernel", (4,), "f4", external=[(tmp_path / "x", 0, 16)])
    with pytest.raises(WeightsError, match="conv2d/kernel is stored in another file"):
        load_weights(POOL, str(path))
    monkeypatch.setattr(keras_file, "crash_of", lambda read, path: "crashed (signal 11)")
    with pytest.raises(WeightsError, match=r"HDF5 crashed \(signal 11\); copy it again"):
        load_weights(POOL, str(path))


@pytest.mark.usefixtures("narrow")
def test_the_published_file_has_the_md5_that_keras_states(
    file: Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = weights.published_file(POOL.weights)
    path.parent.mkdir(parents=True)
    written(before_version_2(file), path)
    with pytest.raises(WeightsError, match=r"its MD5 starts with .*, not b0042744; delete it"):
        load_weights(POOL)
    digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(weights._MD5, POOL.weights, digest)
    assert load_weights(POOL).name == POOL.weights
