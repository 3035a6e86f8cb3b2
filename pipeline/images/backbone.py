"""What is to be known of a backbone: how it is built, and what its weights are called elsewhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from pipeline.networks.state_dicts import Weights


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
    rewritable : whether the fast engine may fuse its layers.
    pretrained : returns the recipe's own weights where a library fetches them, a complete state
        dict in float32. Raises `WeightsError` where they cannot be had.
    load : of a library that reads its weights itself: returns those of a source, as `load_weights`
        takes it, from the name of the recipe's own and the source.
    """

    build: Callable[[], nn.Module]
    methods: Mapping[str, str] = field(default_factory=dict)
    residual_norms: str = ""
    layer_names: Mapping[str, str] = field(default_factory=dict)
    heads: tuple[str, ...] = ()
    rewritable: bool = True
    pretrained: Callable[[], dict[str, Tensor]] | None = None
    load: Callable[[str, str], Weights] | None = None
