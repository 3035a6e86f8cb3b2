"""A recipe's network in training: windows in, feature rows out, with gradients."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads import HeadError
from pipeline.images.backbones.backbone import Backbone
from pipeline.images.network import pooled
from pipeline.images.recipes import Recipe
from pipeline.images.recipes.layers import unknown_layer
from pipeline.images.tap import TappedNetwork


class LearningNetwork(nn.Module):
    """A recipe's network up to its tap, with the recipe's normalisation, pooling and norm.

    It always runs in evaluation mode. Batch norms keep their running statistics, since those of a
    batch of some 64 images are noisy compared with the pretrained ones, and extraction uses the
    latter; their scales and shifts are trained. Deviation: the program of VSE++ updates the
    statistics. Dropout and stochastic depth are off.
    """

    _mean: Tensor
    _std: Tensor

    def __init__(
        self,
        recipe: Recipe,
        backbone: Backbone,
        state: dict[str, Tensor],
        first_layer: str = "",
        precision: str = "float32",
    ) -> None:
        super().__init__()
        net = backbone.filled({name: tensor.clone() for name, tensor in state.items()})
        # Names of the backbone's state dictionary; the tap renames a layer but keeps the order.
        self.own_names: tuple[str, ...] = tuple(net.state_dict())
        _let_learn(net, recipe.backbone, first_layer)
        self._recipe, self._backbone = recipe, backbone
        self._bf16 = precision == "bf16"
        self.tapped = TappedNetwork(net, backbone, recipe)
        normalise = recipe.normalise
        # Not persistent: the state dictionary is the network's own.
        self.register_buffer("_mean", torch.tensor(normalise.mean), persistent=False)
        self.register_buffer("_std", torch.tensor(normalise.std), persistent=False)
        self.eval()

    def train(self, mode: bool = True) -> "LearningNetwork":
        """Record the mode; every layer stays in evaluation mode."""
        super().train(False)
        self.training = mode
        return self

    def forward(self, windows: Tensor) -> Tensor:
        """Return (n, *row_shape) float32 rows of (n, h, w, 3) float32 windows, 0 to 255, RGB."""
        x = windows.permute(0, 3, 1, 2)
        normalise = self._recipe.normalise
        if normalise.channels == "BGR":
            x = x.flip(1)
        x = (x / normalise.scale - self._mean.view(3, 1, 1)) / self._std.view(3, 1, 1)
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self._bf16 and self.training):
            x = self.tapped(x)
        rows = pooled(x.float(), self._recipe, self._backbone)
        return F.normalize(rows, dim=-1) if self._recipe.norm == "l2" else rows


def _let_learn(net: nn.Module, name: str, first_layer: str) -> None:
    """Freeze the layers before `first_layer`, in the network's own order; empty: all train."""
    if first_layer and first_layer not in (layers := [n for n, _ in net.named_modules() if n]):
        raise unknown_layer(name, first_layer, layers)
    learns = not first_layer
    for parameter_name, parameter in net.named_parameters():
        learns = learns or parameter_name.startswith(f"{first_layer}.")
        parameter.requires_grad_(learns)
    if not learns:
        raise HeadError(
            f"{name} has no weights in layer {first_layer!r} or after it, so nothing would be "
            "trained; name the first layer with trainable weights"
        )
