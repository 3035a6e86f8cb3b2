"""Definition of a backbone: its construction, and its weight names in other formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pipeline.images.engine.fuse import Tracing
from pipeline.images.networks.state_dicts import Weights
from pipeline.images.recipes.layers import OutputLayout, layout_of
from pipeline.images.recipes.schema import Recipe


@dataclass(frozen=True)
class Backbone:
    """A network architecture, with the names of its weights in other formats."""

    build: Callable[[], nn.Module]
    """Builds the whole network, from (n, 3, size, size) normalised crops to class scores."""
    methods: Mapping[str, str] = field(default_factory=dict)
    """Taps that are not layers, mapped to the method of the network that computes them."""
    residual_norms: str = ""
    """Name suffix of the last batch norm of each residual branch."""
    layer_names: Mapping[str, str] = field(default_factory=dict)
    """Layer names in other files, mapped to those of the network."""
    heads: tuple[str, ...] = ()
    """Name prefixes of layers that are not built; files may have them in any shape, or not."""
    merge: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda tensors: tensors
    """Merges tensors of a file that are one in the network, by the network's names."""
    layout: Callable[[tuple[int, ...]], OutputLayout] = layout_of
    """OutputLayout of one image's output of a given shape."""
    tracing: Tracing = field(default_factory=Tracing)
    tested: bool = True
    """Whether a test in this project compares the fast engine's network with this one. Otherwise
    they are compared when the weights are loaded."""
    pretrained: Callable[[], dict[str, Tensor]] | None = None
    """Returns the recipe's own weights, from a library or a formula."""
    load: Callable[[str, str], Weights] | None = None
    """For libraries that read their weights themselves: weights by the name of the recipe's own
    and a source, as `load_weights` accepts it."""
    cached: Callable[[str], bool] = lambda weights: False
    """Whether a recipe's own weights, by name, need no download."""

    def outline(self) -> nn.Module:
        """Return the network on the meta device, without allocated weights."""
        return outline_of(self.build)

    def filled(self, state: dict[str, Tensor]) -> nn.Module:
        """Return the network with the given weights, a complete state dict, without a copy."""
        net = self.outline()
        net.load_state_dict(state, assign=True)
        if any(constant.is_meta for constant in net.buffers()):
            # Some networks compute constants at construction that are not in the state dict.
            net = self.build()
            net.load_state_dict(state, assign=True)
        return net


def outline_of(build: Callable[[], nn.Module]) -> nn.Module:
    """Return the network that a function builds on the meta device, without allocated weights."""
    try:
        with torch.device("meta"):
            return build()
    # Some networks compute with numbers of tensors while they are built, as torchvision's RegNets.
    except NotImplementedError:
        return build().to("meta")


class Library(NamedTuple):
    """A `pipeline.images.recipes.by_name.Provider` made of two functions of a name."""

    recipe: Callable[[str], Recipe]
    backbone: Callable[[str], Backbone]
