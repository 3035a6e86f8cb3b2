"""Several recipes as one image feature: what its name says, and its making."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.progress import Monitor
from pipeline.recipes import RecipeError
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.index import FeatureIndex
from pipeline.shards.side_by_side import SCALINGS, write_view


@dataclass(frozen=True)
class SideBySide:
    """What a name such as "efficientnet-lite0-pool+efficientnet-lite1-pool" says.

    Attributes
    ----------
    recipes : names of recipes, in the order of their columns.
    scaling : of each recipe's row, a key of `SCALINGS`.
    """

    recipes: tuple[str, ...]
    scaling: str


def split_name(name: str) -> SideBySide | None:
    """Return what a name says of several recipes; None if it names one.

    Parameters
    ----------
    name : "A+B" of recipes A and B, each at length 1, or "<scaling>:A+B" with a key of `SCALINGS`.

    Raises
    ------
    RecipeError
        A recipe stands there twice or has no name, or a scaling has one recipe.
    """
    prefix, _, rest = name.partition(":")
    scaled = prefix in SCALINGS
    recipes = tuple((rest if scaled else name).split("+"))
    if len(recipes) == 1 and not scaled:
        return None
    if len(recipes) == 1 or len({*recipes}) < len(recipes) or "" in recipes:
        raise RecipeError(
            f"{name!r} names no recipes that can stand side by side; give two or more, each once, "
            "as in efficientnet-lite0-pool+efficientnet-lite1-pool"
        )
    return SideBySide(recipes, prefix if scaled else "unit")


def extract_side_by_side(
    names: SideBySide,
    out: Path,
    extract: Callable[[str, Path], object],
    monitor: Monitor,
    suffix: str = "",
) -> FeatureIndex:
    """Have each recipe extracted into its own folder beside `out`, and put them side by side there.

    Parameters
    ----------
    names : of the recipes.
    out : folder that will name the others; it holds no rows.
    extract : extracts one recipe, given by its name, into a folder, or what is missing of it.
    monitor : gets a line a recipe.
    suffix : of the folders' names, after the recipe's.

    Raises
    ------
    ShardError
        See `write_view`.
    """
    folders = [out.resolve().parent / f"{name}{suffix}" for name in names.recipes]
    for name, folder in zip(names.recipes, folders, strict=True):
        monitor.log(f"{name} -> {folder}")
        extract(name, folder)
    index = write_view(out, [FeatureSet(folder) for folder in folders], names.scaling)
    monitor.log(f"{out}: {len(folders)} sets side by side, {SCALINGS[names.scaling]}")
    return index
