"""Made pairs whose captions describe their images through a fixed random map, with noise."""

import numpy as np

from pipeline.heads.pairs import Pairs


def pairs(images: int, seed: int = 0, captions: int = 3, noise: float = 0.3) -> Pairs:
    """Return pairs with image features (n, 12) and caption features (c, 8)."""
    world = np.random.default_rng(99)
    to_image, to_caption = world.standard_normal((6, 12)), world.standard_normal((6, 8))
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((images, 6))
    owner = np.repeat(np.arange(images), captions)
    said = meaning[owner] + noise * rng.standard_normal((len(owner), 6))
    return Pairs(
        tuple(f"{seed}-{i}" for i in range(images)),
        tuple(f"{seed}-{i}#{k}" for i in range(images) for k in range(captions)),
        owner,
        (meaning @ to_image).astype(np.float32),
        (said @ to_caption).astype(np.float32),
    )
