"""The preprocessing that a folder of weights states, compared with that of the recipe."""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.images.recipes import Recipe
from pipeline.store.files import parse_json

# Files of timm and of transformers; the first of them that states something counts.
_FILES = ("config.json", "preprocessor_config.json")
_FILTERS = {2: "bilinear", 3: "bicubic"}  # transformers has the numbers of Pillow
_WITHIN = 1e-3  # of published means and deviations, some of which are rounded


def remark_on_preprocessing(weights: Path, recipe: Recipe) -> str:
    """Return a line for the log unless a folder of weights states the preprocessing of the recipe.

    Compared are mean, deviation, size of the crop and interpolation, where the folder states them.
    """
    stated = next((values for name in _FILES if (values := _stated(weights / name))), {})
    way = recipe.normalise
    scale = 255 / way.scale
    used = {
        "mean": tuple(np.divide(way.mean, scale).tolist()),
        "std": tuple(np.divide(way.std, scale).tolist()),
        "crop": recipe.crop.size,
        "interpolation": recipe.resize.interpolation,
    }
    if way.channels == "BGR":
        used |= {name: used[name][::-1] for name in ("mean", "std")}  # type: ignore[index]
    if not stated:
        its = ", ".join(f"{name} {_text(value)}" for name, value in used.items())
        return (
            f"{weights} states no preprocessing; that of {recipe.name} is used: "
            f"{recipe.resize.rule} {recipe.resize.size}, {its}"
        )
    both = {name: (stated[name], value) for name, value in used.items() if name in stated}
    unlike = [
        f"{name} {_text(theirs)}, not {_text(ours)}"
        for name, (theirs, ours) in both.items()
        if not _alike(theirs, ours)
    ]
    if not unlike:
        return ""
    return (
        f"{weights} states other preprocessing than {recipe.name} has: {'; '.join(unlike)}; "
        "the recipe is used"
    )


def _stated(file: Path) -> dict[str, Any]:
    """Return what a file states, with the keys of `remark_on_preprocessing`."""
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
        if timm := content.get("pretrained_cfg"):
            crop = (timm.get("test_input_size") or timm.get("input_size") or [None])[-1]
            found = {"crop": crop, "interpolation": timm.get("interpolation")}
            found |= {name: timm.get(name) for name in ("mean", "std")}
        else:
            size = content.get("crop_size") or content.get("size") or {}
            found = {
                "mean": content.get("image_mean"),
                "std": content.get("image_std"),
                "crop": size.get("height") if isinstance(size, dict) else size,
                "interpolation": _FILTERS.get(content.get("resample")),
            }
        for name in ("mean", "std"):
            found[name] = found[name] and tuple(map(float, found[name]))
    # Only a line for the log depends on it: what is damaged or of another kind states nothing.
    except (OSError, ValueError, TypeError, AttributeError, LookupError):
        return {}
    return {name: value for name, value in found.items() if value is not None}


def _alike(stated: Any, used: Any) -> bool:
    if isinstance(used, tuple):
        return len(stated) == len(used) and np.allclose(stated, used, atol=_WITHIN)
    return bool(stated == used)


def _text(value: Any) -> str:
    return " ".join(f"{v:g}" for v in value) if isinstance(value, tuple) else str(value)
