"""What is to be known of a backbone: how it is built, and what its weights are called elsewhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pipeline.images.engine.fuse import Tracing
from pipeline.networks.state_dicts import Weights
from pipeline.recipes.layers import Layout, layout_of


@dataclass(frozen=True)
class Backbone:
    """A network's architecture, and what its weights are called elsewhere.

    Attributes
    ----------
    build : the whole network of torchvision or the package, with its classifier. It maps
        (n, 3, size, size) normalised crops to class scores.
    methods : taps that are no layer: their names, to the method of the network that gives them.
    residual_norms : name ending of the last batch norm of each residual branch.
    layer_names : what other files call a layer, to what the network calls it.
    heads : beginnings of the names of layers that are not built: files may have them in any
        shape or not at all.
    merge : joins tensors of a file that are one in the network, names being the network's.
    layout : of an output of this shape, of one image. Raises `RecipeError`.
    tracing : how the fast engine traces the network.
    tested : whether a test here compares the network that the fast engine makes with this one.
        Otherwise they are compared when the weights are loaded.
    pretrained : returns the recipe's own weights where a library fetches them or a formula has
        them, a complete state dict in float32. Raises `WeightsError` where they cannot be had.
    load : of a library that reads its weights itself: returns those of a source, as `load_weights`
        takes it, from the name of the recipe's own and the source.
    cached : whether a recipe's own weights, of this name, need no download.
    """

    build: Callable[[], nn.Module]
    methods: Mapping[str, str] = field(default_factory=dict)
    residual_norms: str = ""
    layer_names: Mapping[str, str] = field(default_factory=dict)
    heads: tuple[str, ...] = ()
    merge: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda tensors: tensors
    layout: Callable[[tuple[int, ...]], Layout] = layout_of
    tracing: Tracing = field(default_factory=Tracing)
    tested: bool = True
    pretrained: Callable[[], dict[str, Tensor]] | None = None
    load: Callable[[str, str], Weights] | None = None
    cached: Callable[[str], bool] = lambda weights: False

    def outline(self) -> nn.Module:
        """Return the network without memory for its weights."""
        with torch.device("meta"):
            return self.build()

    def filled(self, state: dict[str, Tensor]) -> nn.Module:
        """Return the network with weights, a complete state dict that is not copied."""
        net = self.outline()
        net.load_state_dict(state, assign=True)
        if any(constant.is_meta for constant in net.buffers()):
            # Some compute constants while they are built, which are in no state dict.
            net = self.build()
            net.load_state_dict(state, assign=True)
        return net
