"""A start against all negatives, for heads that then train against the hardest ones."""

import torch
from torch import Tensor, nn

from pipeline.heads.losses.ranking import sum_of_hinges


class WarmUp(nn.Module):
    """Counts the batches of a training, the first of which take an easier loss.

    With the hardest negatives from the start, and few images, both sides fall to one point, where
    every hinge is the margin, and stay there. The count is a buffer, so that a training that is
    continued goes on with it.
    """

    count: Tensor

    def __init__(self, batches: int) -> None:
        """Take the number of batches that warm up."""
        super().__init__()
        self.batches = batches
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self) -> bool:
        """Return whether this batch is one of the first, and count it."""
        self.count += 1
        return int(self.count) <= self.batches


def mean_of_hinges(scores: Tensor, owner: Tensor, margin: float) -> Tensor:
    """Return `sum_of_hinges` over the number of other images.

    That is of the size of `hardest_negative`, so that Adam's step sizes fit the loss that
    comes after it.
    """
    return sum_of_hinges(scores, owner, margin) / max(1, len(scores) - 1)
