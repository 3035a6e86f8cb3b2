"""Concatenated image features of several recipes: parsing the name, and extraction."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.images.recipes import RecipeError
from pipeline.store.errors import WrongUsage
from pipeline.store.files import file_name
from pipeline.store.objects.urls import shown, url_of
from pipeline.store.progress import Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.side_by_side import SCALINGS, write_view


@dataclass(frozen=True)
class SideBySide:
    """Parsed name such as "efficientnet-lite0-pool+efficientnet-lite1-pool"."""

    recipes: tuple[str, ...]  # in column order
    scaling: str  # a key of `SCALINGS`, applied to each recipe's row


def split_name(name: str) -> SideBySide | None:
    """Parse "A+B" or "<scaling>:A+B" as concatenated recipes; return None for a single recipe."""
    # Without a scaling, each recipe's row is scaled to length 1.
    prefix, _, rest = name.partition(":")
    scaled = prefix in SCALINGS
    recipes = tuple((rest if scaled else name).split("+"))
    if len(recipes) == 1 and not scaled:
        return None
    if len(recipes) == 1 or len({*recipes}) < len(recipes) or "" in recipes:
        raise RecipeError(
            f"{name!r} does not name recipes to concatenate; expected at least two different ones, "
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
    """Extract each recipe into its own folder next to `out`, and write a view of them to `out`."""
    if url_of(out) is not None:
        raise WrongUsage(
            f"{shown(out)}: a concatenation of sets is a folder on this machine; extract each of "
            f"{', '.join(names.recipes)} to the store by itself"
        )
    folders = [
        out.resolve().parent / f"{file_name(name, of_model=True)}{suffix}" for name in names.recipes
    ]
    for name, folder in zip(names.recipes, folders, strict=True):
        monitor.log(f"{name} -> {folder}")
        extract(name, folder)
    index = write_view(out, [FeatureSet(folder) for folder in folders], names.scaling)
    monitor.log(f"{out}: {len(folders)} sets concatenated, {SCALINGS[names.scaling]}")
    return index
