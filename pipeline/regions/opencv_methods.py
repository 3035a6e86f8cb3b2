"""Proposals by OpenCV: EdgeBoxes, selective search and BING; an extra, imported when named.

Images are shrunk to a longer side of `SIDE` pixels, except for BING, which shrinks them itself.
OpenCV runs on one thread here, so that boxes do not depend on the number of cores.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.images.decoding.decode import UnusableImage
from pipeline.regions import RegionError
from pipeline.regions.methods import Method, ScoredBoxes
from pipeline.store.extras import missing_package, require
from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.shards.format import REFUSED

SIDE = 250
_PACKAGES = ("opencv-contrib-python-headless",)
_SMALLEST = 8
# Blur and scale of the gradients, tuned on Flickr8k's training split.
_SIGMA, _PERCENTILE = 1.5, 99.0

# OpenCV's selective search uses C's random numbers, and BING prints to C's stdout: both belong to
# the whole process.
_process = threading.Lock()


@cache
def opencv() -> Any:
    """Import OpenCV with its contributed modules, on one thread."""
    need = "edge-boxes, selective-search and bing need"
    instead = ", or use grid or boxes, which need no package"
    cv2 = require("cv2", need, instead)
    if not (hasattr(cv2, "ximgproc") and hasattr(cv2, "saliency")):
        raise missing_package("cv2", need, "this OpenCV lacks its contributed modules", instead)
    cv2.setNumThreads(1)
    return cv2


def edge_boxes(number: int, edge_model: Path | None) -> Method:
    """Return EdgeBoxes (Zitnick and Dollár, ECCV 2014) by OpenCV, at most `number` per image.

    The edge model has structured forests' trained edges; None: edges are the local maxima of the
    colours' gradient along its direction, which need no model.
    """
    cv2 = opencv()

    def propose(image_id: str, pixels: np.ndarray) -> ScoredBoxes:
        small, factors = _shrunk(cv2, pixels)
        edges, direction = (
            _gradient_edges(cv2, small)
            if edge_model is None
            else _learned_edges(cv2, small, str(edge_model))
        )
        finder = cv2.ximgproc.createEdgeBoxes(maxBoxes=number)
        boxes, scores = finder.getBoundingBoxes(edges, direction)
        return _in_photo(boxes, np.asarray(scores, np.float64).reshape(-1), factors, pixels)

    recipe: dict[str, Any] = {"name": "edge-boxes", "side": SIDE, "edges": "structured forests"}
    if edge_model is None:
        recipe["edges"] = {"sigma": _SIGMA, "percentile": _PERCENTILE}
        return Method(recipe, propose, packages=_PACKAGES)
    return Method(recipe, propose, (edge_model.name, sha256_of_file(edge_model)), _PACKAGES)


def selective_search() -> Method:
    """Return selective search (Uijlings et al., IJCV 2013) by OpenCV, in its fast mode."""
    cv2 = opencv()

    def propose(image_id: str, pixels: np.ndarray) -> ScoredBoxes:
        small, factors = _shrunk(cv2, pixels)
        # The order of its boxes is random by design, from C's generator.
        search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
        search.setBaseImage(np.ascontiguousarray(small[:, :, ::-1]))
        search.switchToSelectiveSearchFast()
        with _process:
            ctypes.CDLL(None).srand(0)
            boxes = search.process()
        return _in_photo(boxes, _by_rank(len(boxes)), factors, pixels)

    recipe = {"name": "selective-search", "side": SIDE, "mode": "fast", "seed": 0}
    return Method(recipe, propose, packages=_PACKAGES)


def bing(folder: Path) -> Method:
    """Return BING (Cheng et al., CVPR 2014) by OpenCV, with a trained model.

    The folder has files such as OpenCV's `ObjNessB2W8MAXBGR.*.yml.gz`; it is recorded by its name
    and a SHA-256 of the names and SHA-256 of its files.
    """
    cv2 = opencv()

    def propose(image_id: str, pixels: np.ndarray) -> ScoredBoxes:
        _require_large(pixels)
        with _process, _silent_stdout():
            finder = cv2.saliency.ObjectnessBING_create()
            finder.setTrainingPath(str(folder))
            succeeded, boxes = finder.computeSaliency(np.ascontiguousarray(pixels[:, :, ::-1]))
        if not succeeded:
            raise UnusableImage(f"BING finds nothing with the model in {folder}", REFUSED)
        # BING counts from 1 and includes the last pixel.
        corners = np.asarray(boxes, np.float64).reshape(-1, 4) - [1, 1, 0, 0]
        sizes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
        return _in_photo(sizes, _by_rank(len(corners)), (1.0, 1.0), pixels)

    files = sorted(path for path in folder.iterdir() if path.is_file())
    digest = sha256_of_json([[path.name, sha256_of_file(path)] for path in files])
    return Method({"name": "bing"}, propose, (folder.name, digest), _PACKAGES)


def _require_large(pixels: np.ndarray) -> None:
    if min(pixels.shape[:2]) < _SMALLEST:
        raise UnusableImage(
            f"{pixels.shape[1]} x {pixels.shape[0]} pixels are too few for proposals; at least "
            f"{_SMALLEST} on each side are needed",
            REFUSED,
        )


def _shrunk(cv2: Any, pixels: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Return the shrunk image, and the factors of x and y back to the original."""
    _require_large(pixels)
    height, width = pixels.shape[:2]
    scale = min(1.0, SIDE / max(height, width))
    size = max(_SMALLEST, round(width * scale)), max(_SMALLEST, round(height * scale))
    if size == (width, height):
        return pixels, (1.0, 1.0)
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return small, (width / size[0], height / size[1])


def _in_photo(
    boxes: np.ndarray, scores: np.ndarray, factors: tuple[float, float], pixels: np.ndarray
) -> ScoredBoxes:
    """Return boxes (x, y, width, height) of the shrunk image as distinct boxes in the image."""
    x, y, w, h = np.asarray(boxes, np.float64).reshape(-1, 4).T
    corners = np.stack([x, y, x + w, y + h], axis=1) * [*factors, *factors]
    height, width = pixels.shape[:2]
    corners = np.clip(corners, 0, [width, height, width, height]).astype(np.float32)
    _, first = np.unique(corners, axis=0, return_index=True)
    distinct = np.sort(first)
    distinct = distinct[(corners[distinct, 2:] > corners[distinct, :2]).all(1)]
    return corners[distinct], scores[distinct]


def _by_rank(number: int) -> np.ndarray:
    """Return scores that descend from 1, for ranked boxes without scores."""
    return np.linspace(1, 0, number, endpoint=False)


def _gradient_edges(cv2: Any, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return thin edges, 0-1, and the gradient's direction, 0-pi, both (h, w) float32."""
    # Scharr's filter after a blur; of the colours, the channel with the largest gradient counts.
    blurred = cv2.GaussianBlur(pixels, (0, 0), _SIGMA).astype(np.float32)
    across, down = (
        np.atleast_3d(cv2.Scharr(blurred, cv2.CV_32F, *axis)) for axis in ((1, 0), (0, 1))
    )
    strengths = np.sqrt(across**2 + down**2)
    channel = strengths.argmax(2)[..., None]
    gx, gy, edges = (
        np.take_along_axis(values, channel, 2)[..., 0] for values in (across, down, strengths)
    )
    length = np.maximum(edges, 1e-9)
    height, width = edges.shape
    y, x = np.mgrid[:height, :width].astype(np.float32)
    step = gx / length, gy / length
    # Non-maximum suppression: compared with the strengths one pixel along the gradient, both ways.
    neighbours = [
        cv2.remap(edges, x + side * step[0], y + side * step[1], cv2.INTER_LINEAR)
        for side in (1, -1)
    ]
    edges = np.where((edges >= neighbours[0]) & (edges >= neighbours[1]), edges, 0)
    if edges.any():
        edges = np.minimum(edges / np.percentile(edges[edges > 0], _PERCENTILE), 1)
    direction = np.mod(np.arctan2(gy, gx), np.pi)
    return edges.astype(np.float32), direction.astype(np.float32)


def _learned_edges(cv2: Any, pixels: np.ndarray, model: str) -> tuple[np.ndarray, np.ndarray]:
    """Return thin edges of structured forests (Dollár and Zitnick, ICCV 2013), likewise."""
    try:
        finder = cv2.ximgproc.createStructuredEdgeDetection(model)
    except cv2.error as error:
        raise RegionError(
            f"{model} is not an edge model of OpenCV ({str(error).splitlines()[0]}); pass a "
            "model.yml.gz of structured forests, or none"
        ) from error
    edges = finder.detectEdges(pixels.astype(np.float32) / 255)
    direction = finder.computeOrientation(edges)
    return finder.edgesNms(edges, direction), direction


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Suppress prints of C code to the standard output, which is for results."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    stdout, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        libc.fflush(None)
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(nowhere)
