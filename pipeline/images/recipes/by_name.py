"""Image recipes by name: those of the catalogue, at any size and layer, of libraries and guests."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from pipeline.images.recipes.image_recipes import AT_OTHER_SIZES, DEFAULT_RECIPE, RECIPES
from pipeline.images.recipes.layers import GRID_AXES, LayerName
from pipeline.images.recipes.schema import Crop, Normalise, Recipe, RecipeError, Resize
from pipeline.store.errors import UnexpectedType, UnknownName
from pipeline.store.registry import Registry
from pipeline.store.wording import did_you_mean


class Provider(Protocol):
    """A source of networks: a library, the catalogue, or another package."""

    def recipe(self, name: str) -> Recipe:
        """Return the recipe of "<model>[-<pool>][@<layer>]", where the model begins with a prefix.

        Raises UnknownName or RecipeError.
        """

    def backbone(self, name: str) -> Any:
        """Return the `pipeline.images.backbones.backbone.Backbone` that a recipe names."""


_BACKBONES = "pipeline.images.backbones"
_LIBRARIES = {
    "open-clip": f"{_BACKBONES}.open_clip_backbones:PROVIDER",
    "timm": f"{_BACKBONES}.timm_backbones:PROVIDER",
    "torchvision": f"{_BACKBONES}.torchvision_backbones:PROVIDER",
    "transformers": f"{_BACKBONES}.transformers_backbones:PROVIDER",
}
_CATALOGUE = dict.fromkeys(DEFAULT_RECIPE, f"{_BACKBONES}.known_backbones:PROVIDER")
PROVIDERS: Registry[Provider] = Registry(
    "backbones",
    "pipeline.images.recipes.by_name:PROVIDERS",
    _CATALOGUE | _LIBRARIES,
    "a pipeline.ImageNetwork",
    lambda thing: callable(getattr(thing, "recipe", None)) and hasattr(thing, "backbone"),
)
"""Backbones of the catalogue by name, libraries by the prefix of their models, and guests."""


def provider_of(name: str) -> str | None:
    """Return the key in `PROVIDERS` of the network of a recipe or backbone; None if unknown."""
    prefix, colon, _ = name.partition(":")
    if colon and prefix in _LIBRARIES:
        return prefix
    if (parts := LayerName.parse(name)) is None:
        return None
    whole = LayerName(parts.base, parts.pool, None)
    if (key := _catalogued(str(whole)) or _catalogued(parts.base)) is not None:
        return key
    return parts.base if parts.base in PROVIDERS else None


def _catalogued(name: str) -> str | None:
    """Return the backbone of a recipe of the catalogue, or of a backbone's name."""
    if name in DEFAULT_RECIPE:
        return name
    base = _base_of(name)
    return RECIPES[base].backbone if base in RECIPES else None


_BY_PARTS = {frozenset(name.split("-")): name for name in RECIPES}

# "<recipe>-<pixels>": the recipe at another size. The networks halve the map five times, so a side
# of 32 n pixels has n cells; the limit of 2048 keeps a typing error from exhausting memory.
_RESIZED = re.compile(r"(?P<base>.+)-(?P<size>[1-9][0-9]{1,4})")
_STRIDE, _LEAST, _MOST = 32, 64, 2048


def is_image_recipe(name: str) -> bool:
    """Return whether `resolve_recipe` accepts a name, excluding backbone names of the catalogue."""
    return name not in DEFAULT_RECIPE and provider_of(name) is not None


def catalogue_recipe(name: str) -> Recipe | None:
    """Return the recipe of the catalogue with a name, at any size; None if there is none."""
    key = recipe_name(DEFAULT_RECIPE.get(name, name))
    base = _base_of(key)
    if base not in RECIPES:
        return None
    return RECIPES[key] if key == base else _resized(RECIPES[base], int(key[len(base) + 1 :]))


def _base_of(name: str) -> str:
    """Return the name of a recipe without a size after it."""
    resized = _RESIZED.fullmatch(name)
    return name if resized is None or name in RECIPES else resized["base"]


def recipe_name(name: str) -> str:
    """Return the name of the recipe that is spelled by its parts, in any order after the backbone.

    "vgg19/fc7/10crop/caffe" is "vgg19-caffe-fc7-10crop", and "resnet152/pool/448" is
    "resnet152-pool-448"; shards and hashes have the recipe's name. Other names are unchanged.
    """
    if "/" not in name or ":" in name or provider_of(name) is not None:
        return name
    parts = frozenset(name.replace("/", "-").split("-"))
    for size in ["", *(part for part in parts if part.isdigit())]:
        if (key := _BY_PARTS.get(parts - {size})) is not None:
            return f"{key}-{size}" if size else key
    backbone = name.partition("/")[0]
    others = [key for key in RECIPES if RECIPES[key].backbone.startswith(backbone)]
    hint = f"those of {backbone} are {', '.join(others)}" if others else _hint(backbone)
    raise UnknownName(f"no image recipe has the parts {name!r}; {hint}")


def _resized(base: Recipe, size: int) -> Recipe:
    """Return a recipe at another crop size, its canvas scaled in proportion."""
    name, base_size = f"{base.name}-{size}", base.crop.size
    if base.pool == "none" and base.axes != GRID_AXES:
        raise RecipeError(
            f"{name}: {base.tap} of {base.backbone} is fully connected and has a fixed input size, "
            f"{base_size} pixels; other sizes apply to grids and means over cells only"
        )
    if size == base_size:
        raise RecipeError(f"{name}: {size} pixels is the size of {base.name}; use that name")
    if size % _STRIDE or not _LEAST <= size <= _MOST:
        raise RecipeError(
            f"{name}: {size} pixels are not a multiple of {_STRIDE} from {_LEAST} to {_MOST}"
        )
    cells = 2 * (_cells(base, size),) if base.pool == "none" else ()
    resize = replace(base.resize, size=round(base.resize.size * size / base_size))
    crop, shape = replace(base.crop, size=size), (*cells, base.shape[-1])
    return replace(
        base, name=name, resize=resize, crop=crop, shape=shape,
        backbone=AT_OTHER_SIZES.get(base.backbone, base.backbone),
        source=f"as {base.name}, at {size} pixels",
    )  # fmt: skip


def _cells(grid: Recipe, size: int) -> int:
    """Return the cells of each side at a size, a multiple of all strides, which are powers of 2."""
    stride = 2 ** round(math.log2(grid.crop.size / grid.shape[0]))
    return size // stride


def resolve_recipe(
    name: str | Recipe, precision: str = "float32", storage: str = "float32"
) -> Recipe:
    """Return the recipe of a name, or the default recipe of a backbone.

    Parameters
    ----------
    name : str or Recipe. A key of `RECIPES` or `DEFAULT_RECIPE`, also by its parts,
        "resnet152/pool/10crop"; a key of `RECIPES` with another crop size, "resnet152-pool-448",
        its canvas scaled in proportion; "<library>:<model>" with a library of
        `pipeline.images.recipes.by_name.PROVIDERS`; or a network that another package registers.
        "@<layer>" after any of these reads another layer, a name of the network's
        `named_modules()`, with the same image and crops; "-<pool>" before it selects the pooling, a
        key of `pipeline.images.recipes.layers.POOLS`.
    precision, storage : str. From `pipeline.images.recipes.PRECISIONS` and `STORAGES`.

    Returns
    -------
    Recipe
        Frozen; equal names, precisions and storages have equal recipes.

    Raises
    ------
    UnknownName
        No recipe, backbone, or model of the library has this name; the nearest names are listed.
    RecipeError
        An unsupported precision, storage or size, or a library that is not installed.

    Examples
    --------
    >>> recipe = pipeline.resolve_recipe("resnet152-pool")
    >>> recipe.shape, recipe.backbone
    ((2048,), 'resnet152')
    >>> pipeline.resolve_recipe("resnet152-grid@layer3").shape
    (14, 14, 1024)
    """
    if not isinstance(name, str | Recipe):
        raise UnexpectedType(
            f"a recipe is a name or a Recipe, not a {type(name).__name__}; a network of your own "
            "has a name once `pipeline.register_backbone` knows it"
        )
    if isinstance(name, Recipe):
        return replace(name, precision=precision, storage=storage)
    if (recipe := catalogue_recipe(name)) is None:
        if (provider := provider_of(name)) is None:
            raise UnknownName(f"no image recipe or backbone is called {name!r}; {_hint(name)}")
        recipe = PROVIDERS.get(provider).recipe(name)
        recipe = replace(recipe, plugin=PROVIDERS.plugin(provider))
    return replace(recipe, precision=precision, storage=storage)


def resolved_like(name: str, stored: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a name with the options that the recipe of stored rows records."""
    recipe = resolve_recipe(name, *(str(stored.get(key)) for key in ("precision", "storage")))
    if "resize" not in stored:
        return recipe
    norm: dict[str, Any] = dict(stored["normalise"])
    norm |= {key: tuple(norm[key]) for key in ("mean", "std")}
    return replace(
        recipe, resize=Resize(**stored["resize"]), crop=Crop(**stored["crop"]),
        normalise=Normalise(**norm), combine_crops=stored["combine_crops"],
        shape=tuple(stored["shape"]),
    )  # fmt: skip


def _hint(name: str) -> str:
    """Return the nearest names, and the form of names of library models."""
    library, _, model = name.partition(":")
    if library == "sentence-transformer" and model:
        return f"the image side of a sentence transformer such as CLIP is transformers:{model}"
    near = did_you_mean(name, [*DEFAULT_RECIPE, *RECIPES], "pipeline list recipes")
    forms = "Models of libraries are torchvision:MODEL, timm:MODEL, open-clip:MODEL.TAG and "
    return f"{near}{'' if near.endswith('?') else '.'} {forms}transformers:ID"
