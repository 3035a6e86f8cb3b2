"""Batches for training: caption rows become tensors, in this process or in workers ahead of it."""

import signal
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from pipeline.errors import PipelineError
from pipeline.heads.data.pairs import Pairs
from pipeline.heads.data.rows import RowNumbers, Rows
from pipeline.heads.training.task import Batch, Batches


class PairDataset(Dataset[Batch | PipelineError]):
    """Pairs by arrays of caption rows."""

    def __init__(self, pairs: Pairs) -> None:
        """Take the features, but not the ids, which a worker need not have."""
        self._images: Rows = pairs.images
        self._captions: Rows = pairs.captions
        self._owner = pairs.image_of_caption

    def __getitem__(self, rows: RowNumbers) -> Batch | PipelineError:
        """Return the captions of these rows with each of their images once.

        An error of the user's is returned, not raised: raised in a worker, its text would become
        a traceback.
        """
        images, image_of_caption = np.unique(self._owner[rows], return_inverse=True)
        try:
            return Batch(
                torch.from_numpy(self._images.take(images)),
                torch.from_numpy(self._captions.take(rows)),
                torch.from_numpy(image_of_caption),
            )
        except PipelineError as error:
            return error


class BatchLoader:
    """One epoch of batches whenever it is iterated.

    Which batches, and in which order, is drawn in this process alone, so that neither depends on
    the number of workers.
    """

    def __init__(
        self,
        pairs: Pairs,
        batches: Batches,
        rng: np.random.Generator,
        workers: int,
        device: torch.device,
    ) -> None:
        """Describe the loading; `workers` start with the first epoch and end with the loader."""
        self._device = device
        self._loader = DataLoader(
            PairDataset(pairs),
            batch_size=None,
            sampler=_Epoch(batches, pairs.image_of_caption, rng),
            num_workers=workers,
            # A new worker would check again what the last one has checked of the features.
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            worker_init_fn=_leave_interrupts_to_the_parent,
            # Otherwise each epoch draws from torch's global generator, which is the dropout's.
            generator=torch.Generator(),
        )

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loader:
            if isinstance(batch, PipelineError):
                raise batch
            yield batch.to(self._device)


class _Epoch:
    """The caption rows of each batch of a new epoch whenever it is iterated."""

    def __init__(
        self, batches: Batches, image_of_caption: RowNumbers, rng: np.random.Generator
    ) -> None:
        self._batches, self._owner, self._rng = batches, image_of_caption, rng

    def __iter__(self) -> Iterator[RowNumbers]:
        return self._batches(self._owner, self._rng)


def _leave_interrupts_to_the_parent(worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
