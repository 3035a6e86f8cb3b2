"""What a family of trained heads fills in; everything else about training is the same for all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.heads.data.pairs import Pairs
from pipeline.heads.data.rows import Features, RowNumbers
from pipeline.heads.training.optim import Clip, Rate

Batches = Callable[[RowNumbers, np.random.Generator], Iterator[RowNumbers]]
"""One epoch of caption rows (n,) from `Pairs.owner`; see `pipeline.heads.data.sampling`."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Images, each once, and some of their captions.

    Attributes
    ----------
    images : (i, *row_shape) float32.
    captions : (c, *row_shape) float32.
    image_of_caption : (c,) int64, the row in `images` of each caption's image.
    """

    images: Tensor
    captions: Tensor
    image_of_caption: Tensor

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on another device."""
        return Batch(
            *(
                t.to(device, non_blocking=True)
                for t in (self.images, self.captions, self.image_of_caption)
            )
        )

    def pin_memory(self) -> "Batch":
        """Return the batch in pinned memory; the data loader asks for it by this name."""
        return Batch(*(t.pin_memory() for t in (self.images, self.captions, self.image_of_caption)))


Loss = Callable[[nn.ModuleDict, Batch, int, torch.Generator], Tensor]
"""See `Design.loss`."""


@dataclass(frozen=True)
class Design:
    """All that makes one trained head differ from another.

    Attributes
    ----------
    similarity : name of the similarity that its embeddings are meant for.
    build : from word vectors (vocab_size, d) float32 with NaN rows, or None, to the modules "image"
        and "caption", each from float32 rows to embeddings as evaluation uses them (in evaluation
        mode); there may be more modules. Called under a seeded torch generator; the shapes of
        what it builds do not depend on whether there are word vectors. What is learnt or prepared
        is in its state dictionary.
    loss : from those modules, in training mode, a batch on their device, the epoch (from 0), and a
        generator (on the CPU) for sampled negatives, to a scalar.
    batches : of an epoch.
    optimiser : of the modules' parameters.
    rate : factor on the learning rate of each parameter group, from the epoch (from 0) and the
        validation scores of the epochs before; see `pipeline.heads.training.optim`.
    epochs : at most so many.
    clip : changes gradients before each step; see `pipeline.heads.training.optim`.
    patience : training stops after more than so many epochs in a row without a better score.
    require : refuses training data with HeadError before anything is built.
    prepare : sets buffers from the training data before the first epoch.
    """

    similarity: str
    build: Callable[[Features | None], nn.ModuleDict]
    loss: Loss
    batches: Batches
    optimiser: Callable[[nn.ModuleDict], torch.optim.Optimizer]
    rate: Rate
    epochs: int
    clip: Clip | None = None
    patience: int | None = None
    require: Callable[[Pairs], None] | None = None
    prepare: Callable[[nn.ModuleDict, Pairs], None] | None = None
