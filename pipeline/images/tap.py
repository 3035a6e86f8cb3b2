"""The taps of recipes: the layers of a network whose output is read, all in one forward pass."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.recipes import RecipeError
from pipeline.images.recipes.layers import unknown_layer, unused_layer

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda output: output,
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
    """Raised after the output of the last tap, to skip all later layers."""

    # An exception leaves any depth of modules, whatever their forward methods do with an output.
    # While a network is traced, the outputs are proxies, and the graph ends at the tap as well.


class _Outputs(threading.local):
    """The outputs of the taps in the forward pass of a thread."""

    def __init__(self) -> None:
        self.by_tap: dict[str, Tensor] = {}


class _Recorded(nn.Module):
    """Wrapper of a tapped layer, which records its output, also during tracing."""

    def __init__(self, layer: nn.Module, record: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.layer, self._record = layer, record

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the layer, such as its weight, which other layers may read."""
        return super().__getattr__(name) if name == "layer" else getattr(self.layer, name)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Return the layer's output, unless no later layer is needed."""
        output = self.layer(*inputs, **options)
        # While torch's own layers with several outputs are traced, these are one proxy.
        several = isinstance(self.layer, nn.MultiheadAttention | nn.RNNBase)
        self._record(output[0] if several else first_tensor(output))
        return output


def first_tensor(output: Any) -> Any:
    """Return the first of several outputs: hidden states before weights of attention or caches."""
    while isinstance(output, tuple | Mapping) and output:
        output = next(iter(output.values())) if isinstance(output, Mapping) else output[0]
    return output


class TappedNetwork(nn.Module):
    """A network up to the taps of some recipes, with the recipes' activations.

    Equivalent to torchvision's `create_feature_extractor`, but also for networks that cannot be
    traced.
    """

    def __init__(self, net: nn.Module, backbone: Backbone, *recipes: Tap) -> None:
        """Stop `net`, which is modified in place, after the last of the taps of recipes."""
        super().__init__()
        self.net = net
        self._backbone, self._taps = recipes[0].backbone, [recipe.tap for recipe in recipes]
        # Has no effect on a tap that ends with it.
        self._activations = [_ACTIVATIONS[recipe.activation] for recipe in recipes]
        self._outputs = _Outputs()
        taps = {*self._taps}
        methods = [name for name in backbone.methods if name in taps]
        self._whole = ""  # the tap that is the output of the network itself
        for tap in methods:
            method = backbone.methods[tap]
            if len(methods) == 1 or method == "forward":
                # Called like the network itself, so that a tracer follows.
                net.forward = getattr(net, method)
                self._whole = tap
            else:
                setattr(net, method, self._recorded(getattr(net, method), tap))
        names = [name for name, _ in net.named_modules() if name]
        layers = {}
        for tap in taps.difference(methods):
            if tap not in names:
                raise unknown_layer(self._backbone, tap, [*backbone.methods, *names])
            layers[tap] = net.get_submodule(tap)
            if isinstance(layers[tap], nn.ModuleList | nn.ModuleDict):
                first = next(iter(dict(layers[tap].named_children())), "0")
                raise RecipeError(
                    f"{tap!r} of {self._backbone} is a list of layers; name one of them, such as "
                    f"{tap}.{first}"
                )
        # Inner layers first, whose names a wrapper of an outer one would change.
        for tap in sorted(layers, key=lambda tap: -tap.count(".")):
            net.set_submodule(tap, _Recorded(layers[tap], self._record(tap)))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the (n, ...) output of each tap for (n, 3, h, w) crops; a single one as it is."""
        found = self._read(x)
        if unused := [tap for tap in self._taps if tap not in found]:
            raise unused_layer(self._backbone, unused[0])
        outputs = zip(self._taps, self._activations, strict=True)
        rows = tuple(activation(found[tap]) for tap, activation in outputs)
        return rows if len(rows) > 1 else rows[0]

    def _read(self, x: Tensor) -> dict[str, Tensor]:
        self._outputs.by_tap = {}
        try:
            output: Tensor = self.net(x)
        except _Reached:
            return self._outputs.by_tap
        return self._outputs.by_tap | ({self._whole: output} if self._whole else {})

    def _record(self, tap: str) -> Callable[[Tensor], None]:
        needed = len({*self._taps}) - bool(self._whole)

        def record(output: Tensor) -> None:
            found = self._outputs.by_tap
            if tap in found:  # a layer that the network calls again
                return
            # An exporter must leave each module as it entered it; it drops the later layers.
            exporting = torch.compiler.is_exporting()
            last = len(found) + 1 == needed and not self._whole and not exporting
            # The network may change an output in place later.
            found[tap] = output if last else output.clone()
            if last:
                raise _Reached

        return record

    def _recorded(self, method: Callable[[Tensor], Tensor], tap: str) -> Callable[[Tensor], Tensor]:
        record = self._record(tap)

        def recorded(x: Tensor) -> Tensor:
            output = method(x)
            record(output)
            return output

        return recorded
