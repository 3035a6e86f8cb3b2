"""Made pairs of images and captions in words: three things of twelve are seen and named."""

from typing import Any

import numpy as np

from pipeline.heads.inputs import Inputs, Side
from pipeline.heads.pairs import Pairs
from pipeline.heads.rows import ArrayRows, Features
from pipeline.text.sequences import FIRST_WORD

THINGS, FILLERS, LENGTH, CHANNELS = 12, 5, 10, 8
NUM_IDS = FIRST_WORD + THINGS + FILLERS
GRID = (3, 3, CHANNELS)

SEQUENCE = {
    "name": "made-words",
    "encoder": "sequence",
    "dim": LENGTH,
    "num_ids": NUM_IDS,
    "layout": {"padding": "front"},
}
COUNTS = {"name": "made-counts", "encoder": "bow", "dim": NUM_IDS}


def side(shape: tuple[int, ...], recipe: dict[str, Any]) -> Side:
    """Return the facts of made features."""
    return Side(shape, recipe, "0" * 16, "none")


def inputs(images: tuple[int, ...], *parts: dict[str, Any]) -> Inputs:
    """Return the facts of images of a shape and of captions of one part or several."""
    joined = {"name": "made", "encoder": "concatenation", "parts": list(parts)}
    recipe = parts[0] if len(parts) == 1 else joined
    dim = sum(part["dim"] for part in parts)
    return Inputs(side(images, {"name": "made-image"}), side((dim,), recipe))


def grid_pairs(images: int, seed: int = 0) -> Pairs:
    """Return grids (3, 3, 8) with things in random cells, and front-padded word numbers (10,)."""
    rng = np.random.default_rng(seed)
    codes = np.random.default_rng(99).standard_normal((THINGS, CHANNELS))
    grids = 0.2 * rng.standard_normal((images, 9, CHANNELS))
    sequences = np.zeros((images * 3, LENGTH), np.float32)
    for image in range(images):
        things = rng.choice(THINGS, 3, replace=False)
        grids[image, rng.choice(9, 3, replace=False)] += codes[things]
        for row in range(3 * image, 3 * image + 3):
            fillers = THINGS + rng.integers(0, FILLERS, rng.integers(0, 5))
            said = rng.permutation(np.concatenate([things, fillers]))
            sequences[row, LENGTH - len(said) :] = FIRST_WORD + said
    return Pairs(
        tuple(f"{seed}-{i}" for i in range(images)),
        tuple(f"{seed}-{i}#{k}" for i in range(images) for k in range(3)),
        np.repeat(np.arange(images), 3),
        ArrayRows(grids.reshape(images, *GRID).astype(np.float32)),
        ArrayRows(sequences),
    )


def vector_pairs(images: int, *parts: dict[str, Any], seed: int = 0) -> Pairs:
    """Return vectors (8,) of at least 0, and captions of the parts `SEQUENCE` and `COUNTS`."""
    pairs = grid_pairs(images, seed)
    grids = pairs.images.take(np.arange(images))
    sequences = pairs.captions.take(np.arange(images * 3))
    counts = np.zeros((len(sequences), NUM_IDS), np.float32)
    for row, sequence in zip(counts, sequences.astype(int), strict=True):
        np.add.at(row, sequence[sequence > 0], 1)
    columns: dict[str, Features] = {"sequence": sequences, "bow": counts}
    captions = np.concatenate([columns[part["encoder"]] for part in parts], axis=1)
    return Pairs(
        pairs.image_ids,
        pairs.caption_ids,
        pairs.owner,
        ArrayRows(np.maximum(grids, 0).mean(axis=(1, 2))),
        ArrayRows(captions),
    )
