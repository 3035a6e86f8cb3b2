"""3-D networks (torchvision's and C3D): from runs of frames to rows."""

from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pipeline.clips.c3d import C3D
from pipeline.clips.recipes import VolumeRecipe
from pipeline.images.backbones.backbone import Backbone
from pipeline.images.backbones.known_backbones import torchvision_network
from pipeline.images.recipes import RecipeError
from pipeline.images.tap import TappedNetwork
from pipeline.images.transforms import bilinear, centre_offset
from pipeline.images.weights import Weights, WeightsError, load_backbone_weights
from pipeline.store.devices import usable_device

_DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

_torchvision = partial(torchvision_network, package="torchvision.models.video")
VOLUME_BACKBONES: dict[str, Backbone] = {
    "r3d_18": Backbone(_torchvision("r3d_18"), residual_norms=".conv2.1"),
    "mc3_18": Backbone(_torchvision("mc3_18"), residual_norms=".conv2.1"),
    "r2plus1d_18": Backbone(_torchvision("r2plus1d_18"), residual_norms=".conv2.1"),
    "s3d": Backbone(_torchvision("s3d")),
    "c3d": Backbone(C3D, layer_names={"conv1a": "conv1", "conv2a": "conv2"}),
}


def load_volume_weights(
    recipe: VolumeRecipe, source: str = "imagenet", prefix: str | None = None
) -> Weights:
    """Load the weights of a 3-D network; "imagenet" means the recipe's own, of Kinetics-400."""
    if source == "imagenet" and not recipe.weights.startswith("torchvision:"):
        raise WeightsError(
            f"the weights of {recipe.name} have no reliable address; pass the path of a .pth or "
            ".safetensors file with `weights=...`, or random:SEED for a trial with random weights"
        )
    backbone, shape = VOLUME_BACKBONES[recipe.backbone], (3, recipe.run, recipe.crop, recipe.crop)
    return load_backbone_weights(backbone, [recipe], recipe.weights, shape, source, prefix)


class VolumeNetwork:
    """A 3-D recipe's network on a device: 8-bit runs of frames in, rows out."""

    def __init__(self, recipe: VolumeRecipe, state: dict[str, Tensor], device: str = "cpu") -> None:
        """Build the network and load its weights, a complete state dict."""
        if recipe.precision not in _DTYPES:
            raise RecipeError(f"{recipe.name} has no precision {recipe.precision!r}; use float32")
        self.recipe: VolumeRecipe = recipe
        self._device = usable_device(device)
        self._dtype = _DTYPES[recipe.precision]
        backbone = VOLUME_BACKBONES[recipe.backbone]
        net = backbone.filled(state).eval().requires_grad_(False)
        self._trunk = TappedNetwork(net, backbone, recipe).to(self._device, self._dtype)
        normalise = recipe.normalise
        self._mean = torch.tensor(normalise.mean).view(1, 3, 1, 1, 1)
        self._std = torch.tensor(normalise.std).view(1, 3, 1, 1, 1)

    def cut(self, image: Image.Image) -> np.ndarray:
        """Return the network's input for a frame, (crop, crop, 3) uint8."""
        height, width = self.recipe.canvas
        pixels = np.asarray(image)
        if pixels.shape[:2] != (height, width):
            pixels = np.rint(bilinear(pixels, width, height)).astype(np.uint8)
        size = self.recipe.crop
        top, left = (centre_offset(side - size, "round") for side in (height, width))
        return np.ascontiguousarray(pixels[top : top + size, left : left + size])

    @torch.inference_mode()
    def __call__(self, runs: Tensor) -> Tensor:
        """Return rows (runs, channels) float32 of (runs, frames, crop, crop, 3) uint8."""
        x = runs.permute(0, 4, 1, 2, 3).float()
        if self.recipe.normalise.channels == "BGR":
            x = x.flip(1)
        x = x.div_(self.recipe.normalise.scale).sub_(self._mean).div_(self._std)
        rows = self._trunk(x.to(self._device, self._dtype)).flatten(1).float().cpu()
        if tuple(rows.shape[1:]) != self.recipe.shape:
            raise RecipeError(
                f"{self.recipe.name} has rows of {tuple(rows.shape[1:])}, not {self.recipe.shape}"
            )
        return rows
