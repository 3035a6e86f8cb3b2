"""Models of transformers against the library's own processor and model: pixels and rows.

    python -m bench.transformers_models --images FOLDER

For each of six models of usual width, few layers and seeded weights, saved to a folder: the largest
difference, over all images of the folder, of

pixels   : of the recipe's 8-bit image from the input of the library's processor, in grey levels,
    with its Pillow backend and with its default one, torchvision's.
rows     : of ours from those of the library's processor and model, relative to their length, with
    the same backends.

Rows of the default backend show what its pixels change.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional as F

from pipeline.images.network import RecipeNetwork
from pipeline.images.networks.transformers_models import quiet_transformers
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.transforms import read_sample
from pipeline.images.weights import load_weights

BATCH_SIZE = 16
_TEXT = {"num_hidden_layers": 1, "vocab_size": 49408}
_SQUARE = {"size": {"height": 224, "width": 224}}
# Two layers, at full width and image size: pixels differ, not the depth of the network.
_DEPTH = {"num_hidden_layers": 2}
MODELS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "CLIP": ("CLIP", {"text_config": _TEXT, "vision_config": _DEPTH}, "CLIP", {}),
    "SigLIP 2": (
        "Siglip", {"text_config": _TEXT, "vision_config": _DEPTH}, "Siglip",
        {**_SQUARE, "resample": 2},
    ),
    "DINOv2": (
        "Dinov2", _DEPTH, "Bit", {"size": {"shortest_edge": 256}, "crop_size": 224, "resample": 3}
    ),
    "DINOv3": ("DINOv3ViT", {**_DEPTH, "num_register_tokens": 4}, "DINOv3ViT", _SQUARE),
    "ViT": ("ViT", _DEPTH, "ViT", _SQUARE),
    "ConvNeXt V2": (
        "ConvNextV2", {"depths": [1, 1, 2, 1]}, "ConvNext", {"size": {"shortest_edge": 224}}
    ),
}  # fmt: skip


def saved(folder: Path, model: str) -> Path:
    """Save a model with seeded weights and its processor; return the folder."""
    kind, sides, processor, settings = MODELS[model]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sides)
    with quiet_transformers():
        getattr(transformers, f"{kind}Model")(config).save_pretrained(folder / model)
        made = getattr(transformers, f"{processor}ImageProcessor")(**settings)
        made.save_pretrained(folder / model)
    return folder / model


def theirs(net: Any, pixels: Tensor) -> Tensor:
    """Return the library's rows."""
    if hasattr(net, "get_image_features"):
        return F.normalize(net.get_image_features(pixel_values=pixels).pooler_output, dim=-1)
    row: Tensor = net(pixel_values=pixels).pooler_output
    return row


def picture(path: Path) -> Image.Image:
    """Return an image as a user of the library would open it."""
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def windows_of(paths: list[Path], recipe: Recipe) -> Tensor:
    """Return our crops, (images, 1, size, size, 3) uint8."""
    samples = [read_sample(path, recipe, recipe.crop) for path in paths]
    return torch.from_numpy(np.stack([s.windows for s in samples if s.windows is not None]))


@torch.inference_mode()
def differences(folder: Path, paths: list[Path]) -> dict[str, tuple[float, float]]:
    """Return the largest differences of pixels, in grey levels, and of rows, by backend."""
    recipe = resolve_recipe(f"transformers:{folder}")
    ours = RecipeNetwork(recipe, dict(load_weights(recipe).state))
    with quiet_transformers():
        net = transformers.AutoModel.from_pretrained(folder).eval()
        processors = {
            backend: transformers.AutoImageProcessor.from_pretrained(folder, backend=backend)
            for backend in ("pil", "torchvision")
        }
    levels = torch.tensor(recipe.normalise.std).view(3, 1, 1) * recipe.normalise.scale
    largest = dict.fromkeys(processors, (0.0, 0.0))
    for start in range(0, len(paths), BATCH_SIZE):
        batch = paths[start : start + BATCH_SIZE]
        windows = windows_of(batch, recipe)
        rows, pixels = ours(windows), ours.normalised(windows.flatten(0, 1))
        for backend, processor in processors.items():
            images = processor(images=[picture(path) for path in batch], return_tensors="pt")
            expected = images["pixel_values"]
            apart = (rows - (row := theirs(net, expected))).norm(dim=1) / row.norm(dim=1)
            found = float(((pixels - expected) * levels).abs().max()), float(apart.max())
            largest[backend] = tuple(map(max, largest[backend], found))  # type: ignore[assignment]
    return largest


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=Path, default=Path("../shared/data/coco-sample/images"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    arguments = parser.parse_args()
    paths = sorted(arguments.images.glob("*.jp*g"))
    if not paths:
        print(f"skipped: {arguments.images} has no JPEG files; pass --images FOLDER")
        return
    print(f"{len(paths)} images, transformers {transformers.__version__}; largest differences")
    print(f"{'':12} {'Pillow backend':>22} {'torchvision backend':>22}")
    print(f"{'model':12} " + f"{'grey levels':>12} {'rows':>9} " * 2)
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.models:
            found = differences(saved(Path(folder), model), paths)
            cells = " ".join(f"{levels:12.1e} {rows:9.1e}" for levels, rows in found.values())
            print(f"{model:12} {cells}", flush=True)


if __name__ == "__main__":
    main()
