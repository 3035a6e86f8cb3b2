"""Region features that are computed per image: their definition, and the recipe of their map."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.images.decoding.decode import Rule
from pipeline.images.recipes import RECIPES, Crop, Recipe, RecipeError, Resize, resolve_recipe
from pipeline.store.shards.format import FeatureHeader

ROI_ALIGN = "-roi-align"

RowsOf = Callable[[Image.Image, npt.NDArray[np.float64]], npt.NDArray[np.float32]]
"""Function from an image and (k, 4) boxes in its pixels to (k, dim) rows."""


@dataclass(frozen=True)
class ByPhoto:
    """Region features that are computed per image."""

    header: FeatureHeader
    rule: Rule  # decodes the images
    prepare: Callable[[], RowsOf]  # called before the first rows, since it may load a network


def map_recipe(name: str, precision: str = "float32", storage: str = "float32") -> Recipe:
    """Return the recipe of the map that regions are pooled from: the grid at twice its side."""
    grid = resolve_recipe(name.removesuffix(ROI_ALIGN) + "-grid", precision, storage)
    if len(grid.shape) != 3 or grid.crop.rule != "none":
        raise RecipeError(
            f"{grid.name} has shape {grid.shape} from a {grid.crop.rule!r} crop; ROI align needs "
            "the map of a whole squashed image"
        )
    side = 2 * grid.crop.size
    # The catalogue's networks have sizes of whole cells.
    if grid.name in RECIPES:
        larger = resolve_recipe(f"{grid.name}-{32 * round(side / 32)}", precision, storage)
        return replace(larger, name=name, source="this project")
    return replace(
        grid,
        name=name,
        resize=Resize("squash", side),
        crop=Crop("none", side),
        shape=(2 * grid.shape[0], 2 * grid.shape[1], grid.shape[2]),
        source="this project",
    )
