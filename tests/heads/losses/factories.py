"""Made score matrices, and which image each caption of a batch is of."""

import numpy as np
import torch
from torch import Tensor

OWNERS = [[0, 1], [0, 0, 1], [0, 1, 1, 1, 2], [0, 0, 1, 2, 2, 3, 3, 3, 4], [0], [0, 0, 0]]


def matrix(image_of_caption: list[int], seed: int, ties: bool = False) -> Tensor:
    rng = np.random.default_rng(seed)
    shape = (max(image_of_caption) + 1, len(image_of_caption))
    scores = rng.integers(-1, 2, shape) / 4 if ties else rng.uniform(-1, 1, shape)
    return torch.from_numpy(scores)
