"""Image processors of transformers as the preprocessing of a recipe."""

import importlib
from typing import Any

from pipeline.images.networks import WeightsError
from pipeline.images.networks.transformers_models import TransformersModel, quiet_transformers
from pipeline.images.recipes.schema import Crop, Normalise, Preprocessing, RecipeError, Resize
from pipeline.store.extras import require

_FILES = ("preprocessor_config.json", "processor_config.json")
# Methods of a processor that change pixels. One with methods of its own is refused, but for the
# ones below.
_STEPS = (
    "preprocess", "_preprocess", "process_image", "resize", "center_crop", "rescale", "normalize",
)  # fmt: skip
_CONVNEXT, _DINOV3 = "ConvNextImageProcessor", "DINOv3ViTImageProcessor"
_FILTERS = {2: "bilinear", 3: "bicubic"}  # by Pillow's numbers


def preprocessing(model: TransformersModel) -> Preprocessing:
    """Return what the image processor of a model does, or raise on what a recipe cannot express.

    Deviation: DINOv3's resizes in floating point; the difference is at most one grey level, since
    Pillow rounds after each of its two passes.
    """
    library, path = require("transformers", "models of transformers need"), model.file(*_FILES)
    try:
        with quiet_transformers():
            processor = library.AutoImageProcessor.from_pretrained(
                str(path.parent), backend="pil", local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise WeightsError(
            f"{path} is not an image processor of transformers {library.__version__} ({error}); "
            "code of the model's own is not run"
        ) from error
    return _preprocessing(processor, model.name)


def _preprocessing(processor: Any, name: str) -> Preprocessing:
    kind = type(processor).__name__.removesuffix("Pil")
    size, crop = (dict(getattr(processor, key, None) or {}) for key in ("size", "crop_size"))
    crop = crop if processor.do_center_crop else {}
    share = getattr(processor, "crop_pct", None)
    side: int = size.get("shortest_edge") or size.get("height", 0)
    squash = size == {"height": side, "width": side}
    if kind == _CONVNEXT and size == {"shortest_edge": side} and share:
        # Deviation of the library from its own fields: a share of the image, or all of it.
        squash = side >= 384
        crop = {} if squash else {"height": side, "width": side}
        side = side if squash else int(side / share)
    window: int = crop.get("height", side)
    mean, std = processor.image_mean, processor.image_std
    faults = {
        f"steps of {kind}": not (kind in (_CONVNEXT, _DINOV3) or _is_plain(processor)),
        "images of any size": not processor.do_resize or not (crop or squash),
        f"a size of {size}": not (squash or size.keys() == {"shortest_edge"}),
        f"a crop of {crop}": bool(crop) and crop != {"height": window, "width": window},
        "padding": bool(getattr(processor, "do_pad", False)) or window > side,
        f"resampling {processor.resample}": processor.resample not in _FILTERS,
        f"mean {mean} of channels": len(mean or ()) != 3,
    }
    if any(faults.values()):
        raise RecipeError(
            f"{name} needs {', '.join(fault for fault, holds in faults.items() if holds)}, which a "
            "recipe cannot express; supported are images squashed to a square, or a centre crop "
            "after resizing, bilinear or bicubic; `timm:` and `open-clip:` have many models too"
        )
    normalise = Normalise(
        round(1 / processor.rescale_factor, 6) if processor.do_rescale else 1.0,
        tuple(mean) if processor.do_normalize else (0.0, 0.0, 0.0),
        tuple(std) if processor.do_normalize else (1.0, 1.0, 1.0),
    )
    return Preprocessing(
        Resize("squash" if squash else "shorter-side", side, _FILTERS[processor.resample]),  # type: ignore[arg-type]
        Crop("none", side) if squash and window == side else Crop("centre", window, "floor"),
        normalise,
    )


def _is_plain(processor: Any) -> bool:
    """Return whether a processor only has settings, with the library's common steps."""
    common = importlib.import_module("transformers.image_processing_backends")
    kind = type(processor)
    return any(
        all(getattr(kind, step) is getattr(base, step) for step in _STEPS)
        for base in (common.PilBackend, common.TorchvisionBackend)
    )
