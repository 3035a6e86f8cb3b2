"""Definition of a backbone: its construction, and its weight names in other formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pipeline.images.engine.fuse import Tracing
from pipeline.images.networks.state_dicts import Weights
from pipeline.images.recipes.layers import Layout, layout_of


@dataclass(frozen=True)
class Backbone:
    """A network architecture, with the names of its weights in other formats.

    Attributes
    ----------
    build : callable. Builds the whole network of torchvision or the package, with its classifier,
        from (n, 3, size, size) normalised crops to class scores.
    methods : mapping of str to str. Taps that are not layers, mapped to the method of the network
        that computes them.
    residual_norms : str. Name suffix of the last batch norm of each residual branch.
    layer_names : mapping of str to str. Layer names in other files, mapped to those of the network.
    heads : tuple of str. Name prefixes of layers that are not built; files may have them in any
        shape, or not.
    merge : callable. Merges tensors of a file that are one in the network, by the network's names.
    layout : callable. Layout of one image's output of a given shape. Raises `RecipeError`.
    tracing : Tracing. Options for tracing the network in the fast engine.
    tested : bool. Whether a test in this project compares the fast engine's network with this one.
        Otherwise they are compared when the weights are loaded.
    pretrained : callable or None. Returns the recipe's own weights, a complete float32 state dict,
        from a library or a formula. Raises `WeightsError` if they are not available.
    load : callable or None. For libraries that read their weights themselves: returns the weights
        for the name of the recipe's own and a source, as `load_weights` accepts it.
    cached : callable. Whether a recipe's own weights, by name, need no download.
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
        """Return the network on the meta device, without allocated weights."""
        with torch.device("meta"):
            return self.build()

    def filled(self, state: dict[str, Tensor]) -> nn.Module:
        """Return the network with the given weights, a complete state dict, without a copy."""
        net = self.outline()
        net.load_state_dict(state, assign=True)
        if any(constant.is_meta for constant in net.buffers()):
            # Some networks compute constants at construction that are not in the state dict.
            net = self.build()
            net.load_state_dict(state, assign=True)
        return net
