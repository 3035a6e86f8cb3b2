"""The tap of a recipe: the layer that is named is the layer that is read."""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.backbones.backbone import Backbone
from pipeline.recipes import RecipeError
from pipeline.recipes.layers import unknown_layer, unused_layer

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": nn.Identity(),
    "relu": F.relu,
    "relu6": F.relu6,
}


class Tap(Protocol):
    """What a recipe says of the layer that is read."""

    @property
    def backbone(self) -> str: ...
    @property
    def tap(self) -> str: ...
    @property
    def activation(self) -> str: ...


class _Reached(Exception):
    """The tap has given its output."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output


class _LastLayer(nn.Module):
    """A layer after which the network stops, when it runs and when it is traced."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """Raise the layer's output."""
        raise _Reached(self.layer(*inputs, **options))


class TappedNetwork(nn.Module):
    """A network up to a recipe's tap, and the recipe's activation.

    Torchvision's `create_feature_extractor` does the same for networks that can be traced; this
    also takes those that cannot.
    """

    def __init__(self, net: nn.Module, backbone: Backbone, recipe: Tap) -> None:
        """Put a stop behind the tap.

        Parameters
        ----------
        net : built by `backbone` and with its weights; it is changed.
        backbone, recipe : the recipe's `tap` is the name of a layer, as `net.named_modules()`
            spells it, or a key of `backbone.methods`. Its `activation` is applied to what the
            tap gives; where the tap's last step is that activation, this changes nothing.

        Raises
        ------
        RecipeError
            The network has no such layer (near names are listed), or it is a list of layers.
        """
        super().__init__()
        self.net = net
        self._backbone, self._tap = recipe.backbone, recipe.tap
        method = backbone.methods.get(recipe.tap)
        self._whole = method is not None
        self._activation = _ACTIVATIONS[recipe.activation]
        if method is not None:
            # Called as the network itself is, or a tracer would not follow.
            net.forward = getattr(net, method)
        else:
            names = [name for name, _ in net.named_modules() if name]
            if recipe.tap not in names:
                raise unknown_layer(recipe.backbone, recipe.tap, [*backbone.methods, *names])
            layer = net.get_submodule(recipe.tap)
            if isinstance(layer, nn.ModuleList | nn.ModuleDict):
                first = next(iter(dict(layer.named_children())), "0")
                raise RecipeError(
                    f"{recipe.tap!r} of {recipe.backbone} is a list of layers; name one of them, "
                    f"as in {recipe.tap}.{first}"
                )
            net.set_submodule(recipe.tap, _LastLayer(layer))

    def forward(self, x: Tensor) -> Tensor:
        """Return the tap's (n, ...) output of (n, 3, h, w) crops, as the network lays it out."""
        return self._activation(self._read(x))

    def _read(self, x: Tensor) -> Tensor:
        try:
            output: Tensor = self.net(x)
        except _Reached as reached:
            return reached.output
        if self._whole:
            return output
        raise unused_layer(self._backbone, self._tap)
