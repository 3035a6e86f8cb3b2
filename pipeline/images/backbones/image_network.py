"""Networks of other packages and programs: `ImageNetwork` and its registration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.layer_recipes import at_layer
from pipeline.images.networks import WeightsError
from pipeline.images.recipes.by_name import PROVIDERS
from pipeline.images.recipes.layers import POOLS, LayerName, layout_of
from pipeline.images.recipes.schema import Preprocessing, Recipe, RecipeError

OUTPUT = "output"
"""The layer that is the network's own output."""


@dataclass(frozen=True)
class ImageNetwork:
    """A network with its preprocessing, which another package or a program registers by name.

    A package declares it as an entry point of the group `caption_feature_pipeline.backbones`; a
    program calls `register_backbone`. The recipe "<name>" then reads the first layer, and
    "<name>[-<pool>]@<layer>" another one.

    Attributes
    ----------
    build : callable. Returns the network, a `torch.nn.Module` of (n, 3, size, size) float32 crops.
        Workers call it too, so it must be a function of a module, or of the program itself.
    preprocess : Preprocessing. Converts an image to such crops.
    layers : mapping of str to tuple of int. Names of layers, as in `named_modules()`, or "output",
        and shapes of their output for one crop: (channels,), (channels, y, x), or (tokens,
        channels). The first is the default. A different shape at run time is an error.
    tokens : mapping of str to int. Number of "class", "distillation" and "registers" tokens before
        the patch tokens, in this order.
    pretrained : callable or None. Returns the state dict of the default weights; None: weights must
        be passed, as a file or random:SEED.
    trained_on : tuple of str. Datasets that the default weights were trained on.

    Examples
    --------
    >>> import torch
    >>> network = pipeline.ImageNetwork(
    ...     lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4, stride=4)),
    ...     pipeline.Preprocessing(
    ...         pipeline.Resize("squash", 64),
    ...         pipeline.Crop("none", 64),
    ...         pipeline.Normalise(255.0, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    ...     ),
    ...     {"output": (8, 16, 16)},
    ... )
    >>> network.recipe("mine-pool").shape
    (8,)
    """

    build: Callable[[], nn.Module]
    preprocess: Preprocessing
    layers: Mapping[str, tuple[int, ...]]
    tokens: Mapping[str, int] = field(default_factory=dict)
    pretrained: Callable[[], Mapping[str, Tensor]] | None = None
    trained_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise RecipeError without a layer, or with a shape that no row can have."""
        if not self.layers:
            raise RecipeError("a network has no layers; name at least one, with its output's shape")
        for shape in self.layers.values():
            layout_of(tuple(shape), self.tokens)

    def recipe(self, name: str) -> Recipe:
        """Return the recipe "<name>[-<pool>][@<layer>]"; a declared layer needs no network."""
        parts = LayerName.parse(name)
        assert parts is not None  # by `provider_of`
        way, layer = self.preprocess, parts.layer or next(iter(self.layers))
        base = Recipe(
            str(parts), parts.base, f"plugin:{parts.base}", way.resize, way.crop, way.normalise,
            tap=layer, activation="none", pool=POOLS[parts.pool or "grid"],
            combine_crops="mean" if way.crop.windows > 1 else "none", shape=(1,), axes="",
            source="its own", trained_on=self.trained_on,
        )  # fmt: skip
        declared = self.layers.get(layer)
        return at_layer(base, parts, self.backbone(parts.base), layer, declared)

    def backbone(self, name: str) -> Backbone:
        """Return the network as a backbone."""
        return Backbone(
            self.build,
            methods={OUTPUT: "forward"},
            layout=partial(layout_of, prefix=self.tokens),
            tested=False,
            pretrained=partial(self._state, name),
            cached=lambda weights: self.pretrained is not None,
        )

    def _state(self, name: str) -> dict[str, Tensor]:
        if self.pretrained is None:
            raise WeightsError(
                f"{name} has no weights of its own; pass the path of a file, or random:SEED"
            )
        return {key: value.detach() for key, value in self.pretrained().items()}


def register_backbone(
    name: str,
    build: Callable[[], nn.Module],
    preprocess: Preprocessing,
    layers: Mapping[str, tuple[int, ...]],
    *,
    tokens: Mapping[str, int] | None = None,
    pretrained: Callable[[], Mapping[str, Tensor]] | None = None,
    trained_on: tuple[str, ...] = (),
) -> None:
    """Register a network of this program as a backbone, for all functions that accept recipes.

    Parameters
    ----------
    name : str. Name of the backbone and its recipe, without "@", ":", "+" and "/".
    build, preprocess, layers, tokens, pretrained, trained_on : see `ImageNetwork`.

    Raises
    ------
    PluginError
        The name is taken by this package or an installed one.
    RecipeError
        The name has a meaning in recipes, or no layer is declared.

    Examples
    --------
    >>> layers = {"layer4": (512, 7, 7)}
    >>> pipeline.register_backbone("mine", build, preprocess, layers)  # doctest: +SKIP
    >>> pipeline.extract("photos", "features/mine", recipe="mine-pool")  # doctest: +SKIP
    """
    parts = LayerName.parse(name)
    if parts != LayerName(name, None, None) or {*name} & {*":+/"} or not name.strip():
        raise RecipeError(
            f"{name!r} cannot be the name of a backbone: '@', ':', '+', '/' and a last part of "
            f"{', '.join(POOLS)} have a meaning in recipes; choose another name"
        )
    network = ImageNetwork(build, preprocess, layers, tokens or {}, pretrained, trained_on)
    PROVIDERS.register(name, network, getattr(build, "__module__", "?"))
