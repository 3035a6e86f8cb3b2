"""Region features from one feature map of the image, by ROI align (He et al., ICCV 2017).

The recipe `<backbone>-roi-align` squashes the image to twice the side of `<backbone>-grid`, of the
catalogue's networks to the nearest multiple of 32, and uses the same layer. A region's row is the
mean of 4 x 4 samples in its box, each bilinearly interpolated (`torchvision.ops.roi_align`: one
bin, 16 samples, aligned, so that cell i covers pixels i to i + 1 of the map). The cost is almost
independent of the number of regions; regions smaller than a cell hardly differ from their
neighbours.
"""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from pipeline.images.batches import feature_header
from pipeline.images.decoding.decode import decoding_rule
from pipeline.images.network import RecipeNetwork
from pipeline.images.transforms import cut_crops, resize_image
from pipeline.images.weights import load_weights
from pipeline.regions.by_photo import ByPhoto, RowsOf, map_recipe
from pipeline.store.jobs.options import Compute

_SAMPLES = 4


def roi_align_features(recipe: str, dataset: str, storage: str, how: Compute) -> ByPhoto:
    """Return the definition of region features pooled from one map of their image."""
    resolved = map_recipe(recipe, how.precision, storage)
    loaded = load_weights(resolved, str(how.weights), how.weights_prefix)
    header = feature_header(resolved, loaded, dataset, how.trained_on)
    pooling = {"pool": "roi align, one bin", "samples": [_SAMPLES, _SAMPLES], "aligned": True}
    shape = resolved.shape[-1:]
    header = replace(
        header,
        recipe={**header.recipe, "shape": shape, "axes": "row, channel", "region": pooling},
        axes="row, channel",
        row_shape=shape,
    )

    @cache
    def prepare() -> RowsOf:
        return partial(_rows, RecipeNetwork(resolved, loaded.state, how.device, how.engine))

    return ByPhoto(header, decoding_rule(resolved.decode), prepare)


def _rows(
    network: RecipeNetwork, image: Image.Image, boxes: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Return the rows of some regions of one image."""
    windows = cut_crops(resize_image(image, network.recipe.resize), network.window)
    grid = network(torch.from_numpy(windows[None].copy()))[0]
    return aligned_rows(grid, boxes, image.width, image.height)


def aligned_rows(grid: torch.Tensor, boxes: np.ndarray, width: int, height: int) -> np.ndarray:
    """Return (k, channels) float32 of boxes (k, 4) in pixels, from the map (y, x, channels)."""
    from torchvision.ops import roi_align

    down, across, _ = grid.shape
    scale = np.array([across / width, down / height] * 2)
    placed = torch.from_numpy((boxes * scale).astype(np.float32))
    maps = grid.permute(2, 0, 1).unsqueeze(0).contiguous()
    pooled = roi_align(maps, [placed], output_size=1, sampling_ratio=_SAMPLES, aligned=True)
    rows: np.ndarray = pooled.flatten(1).numpy()
    return rows
