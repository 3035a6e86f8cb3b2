"""The tap of a recipe: the layer whose output is read."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.recipes import RecipeError
from pipeline.images.recipes.layers import unknown_layer, unused_layer

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": nn.Identity(),
    "relu": F.relu,
    "relu6": F.relu6,
}


class Tap(Protocol):
    """The fields of a recipe that define the tap."""

    @property
    def backbone(self) -> str: ...
    @property
    def tap(self) -> str: ...
    @property
    def activation(self) -> str: ...


class _Reached(Exception):
    """Raised with the output of the tap, to skip all later layers."""

    # An exception leaves any depth of modules, whatever their forward methods do with an output.
    # While a network is traced, the output is a proxy, and the graph ends at the tap as well.

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output


class _LastLayer(nn.Module):
    """Wrapper of the tapped layer, after which the forward pass stops, also during tracing."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """Raise the layer's output."""
        raise _Reached(first_tensor(self.layer(*inputs, **options)))


def first_tensor(output: Any) -> Any:
    """Return the first of several outputs: hidden states before weights of attention or caches."""
    while isinstance(output, tuple | Mapping) and output:
        output = next(iter(output.values())) if isinstance(output, Mapping) else output[0]
    return output


class TappedNetwork(nn.Module):
    """A network up to a recipe's tap, with the recipe's activation.

    Equivalent to torchvision's `create_feature_extractor`, but also for networks that cannot be
    traced.
    """

    def __init__(self, net: nn.Module, backbone: Backbone, recipe: Tap) -> None:
        """Stop `net`, which is modified in place, after the tap of a recipe."""
        super().__init__()
        self.net = net
        self._backbone, self._tap = recipe.backbone, recipe.tap
        method = backbone.methods.get(recipe.tap)
        self._whole = method is not None
        # Has no effect on a tap that ends with it.
        self._activation = _ACTIVATIONS[recipe.activation]
        if method is not None:
            # A key of `backbone.methods`, called like the network itself, so that a tracer follows.
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
                    f"such as {recipe.tap}.{first}"
                )
            net.set_submodule(recipe.tap, _LastLayer(layer))

    def forward(self, x: Tensor) -> Tensor:
        """Return the tap's (n, ...) output of (n, 3, h, w) crops, in the network's layout."""
        return self._activation(self._read(x))

    def _read(self, x: Tensor) -> Tensor:
        try:
            output: Tensor = self.net(x)
        except _Reached as reached:
            return reached.output
        if self._whole:
            return output
        raise unused_layer(self._backbone, self._tap)
