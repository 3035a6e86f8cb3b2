"""Training batches: division of an epoch, and loading to tensors in this process or in workers.

Every function that divides an epoch accepts `image_of_caption`, (captions,) int64, the ascending
image row of each caption (every image has one), and yields caption rows (n,) int64, ascending and
distinct. Epochs differ only by the state of `rng`. A batch with a single image would have neither
negatives nor batch statistics, so it is merged into the previous batch.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import EpochRows, Rows
from pipeline.heads.inputs.pairs import Pairs, first_captions_of
from pipeline.store.errors import PipelineError
from pipeline.store.shards.row_keys import RowNumbers

Batches = Callable[[RowNumbers, np.random.Generator], Iterator[RowNumbers]]
"""Caption rows (n,) of one epoch, from `Pairs.image_of_caption`, in training order."""


class WorkerEnded(PipelineError):
    """A process that loads batches was killed, or could not read its files."""


class TensorBatch:
    """A dataclass whose fields are tensors."""

    def to(self, device: torch.device) -> Self:
        """Return the batch on a device."""
        return type(self)(*(t.to(device, non_blocking=True) for t in vars(self).values()))

    def pin_memory(self) -> Self:
        """Return the batch in pinned memory; the data loader calls it by this name."""
        return type(self)(*(t.pin_memory() for t in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Batch(TensorBatch):
    """Distinct images and some of their captions."""

    images: Tensor  # (i, *row_shape) float32
    captions: Tensor  # (c, *row_shape) float32
    image_of_caption: Tensor  # (c,) int64, row in `images` of each caption's image

    @property
    def matches(self) -> Tensor:
        """Mask (i, c) bool of the captions of each image."""
        row = torch.arange(len(self.images), device=self.image_of_caption.device)
        return self.image_of_caption == row[:, None]


def require_two_images(pairs: Pairs) -> None:
    """Raise HeadError for fewer than two training images: a caption would have no negative."""
    if len(pairs.image_ids) < 2:
        raise HeadError(
            f"{len(pairs.image_ids)} training image found; at least 2 are needed, so that every "
            "caption has a negative: add images to the training split"
        )


def batches_with_siblings(
    image_of_caption: RowNumbers, batch_size: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield all captions once in random order, each batch extended with siblings.

    Wang et al. 2016, section 2.2: for each image of `batch_size` pairs one further sentence is
    added if it has one, so that batches vary in size and the structure term is never empty.
    """
    starts = first_captions_of(image_of_caption)
    counts = np.diff(starts)
    taken = np.zeros(len(image_of_caption), bool)
    chunks = in_batches(rng.permutation(len(image_of_caption)), batch_size)
    for sampled in _without_single_images(chunks, image_of_caption):
        taken[sampled] = True
        images = np.unique(image_of_caption[sampled])
        # All captions of the images of the batch, grouped by image.
        number = counts[images]
        ends = np.cumsum(number)
        candidates = np.arange(ends[-1]) + np.repeat(starts[images] + number - ends, number)
        free = candidates[~taken[candidates]]
        image_at = np.searchsorted(images, image_of_caption[free])
        siblings = one_more_of_each(free, image_at, len(images), rng)
        taken[sampled] = False
        yield np.sort(np.concatenate([sampled, siblings]))


def one_more_of_each(
    members: RowNumbers, group: RowNumbers, groups: int, rng: np.random.Generator
) -> RowNumbers:
    """Return a random member of each non-empty group; `members` (n,) are sorted by `group` (n,)."""
    number = np.bincount(group, minlength=groups)
    first = np.cumsum(number) - number
    having = number > 0
    chosen: RowNumbers = members[first[having] + rng.integers(number[having])]
    return chosen


def one_caption_each(
    image_of_caption: RowNumbers, batch_size: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield all images once, each with a random caption: order-embeddings (Vendrov et al. 2016)."""
    rows = _random_captions(image_of_caption, rng)
    chunks = in_batches(rows[rng.permutation(len(rows))], batch_size)
    for batch in _without_single_images(chunks, image_of_caption):
        yield np.sort(batch)


def shuffled_captions(
    image_of_caption: RowNumbers, batch_size: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield all captions once in random order: the epoch of VSE++ (Faghri et al. 2018).

    Deviation: two captions of one image in a batch are not negatives of each other or of it.
    """
    chunks = in_batches(rng.permutation(len(image_of_caption)), batch_size)
    for batch in _without_single_images(chunks, image_of_caption):
        yield np.sort(batch)


def captions_with_drawn(
    image_of_caption: RowNumbers, batch_size: int, k: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield shuffled captions, then for each of them `k` random captions of other images.

    The contrastive terms of Kiros et al. 2014, sampled from the whole training set in each epoch.
    Unlike other batches, these (pairs * (1 + k),) rows are unordered and may repeat.
    """
    starts = first_captions_of(image_of_caption)
    for pairs in in_batches(rng.permutation(len(image_of_caption)), batch_size):
        first, after = starts[image_of_caption[pairs]], starts[image_of_caption[pairs] + 1]
        others = len(image_of_caption) - (after - first)
        drawn = rng.integers(others[:, None], size=(len(pairs), k))
        # Skip the captions of the own image: shift draws from its first caption on.
        drawn += np.where(drawn >= first[:, None], (after - first)[:, None], 0)
        yield np.concatenate([pairs, drawn.ravel()])


def random_images(
    image_of_caption: RowNumbers, batch_size: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield distinct random images with one random caption each, captions / batch_size times.

    The epoch of Word2VisualVec (Dong et al. 2018): as many batches as all captions would fill, so
    that some images appear more often than others, or never.
    """
    images = int(image_of_caption[-1]) + 1
    for _ in range(-(-len(image_of_caption) // batch_size)):
        chosen = rng.choice(images, min(images, max(2, batch_size)), replace=False)
        yield np.sort(_random_captions(image_of_caption, rng)[chosen])


def _random_captions(image_of_caption: RowNumbers, rng: np.random.Generator) -> RowNumbers:
    """Return one random caption row of each image, (images,)."""
    starts = first_captions_of(image_of_caption)
    return starts[:-1] + rng.integers(np.diff(starts))


def in_batches(rows: RowNumbers, batch_size: int) -> list[RowNumbers]:
    """Return consecutive rows in batches of `batch_size`, the last one shorter."""
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def _without_single_images(
    chunks: Sequence[RowNumbers], image_of_caption: RowNumbers
) -> list[RowNumbers]:
    """Merge a batch with a single image into the previous one."""
    joined: list[RowNumbers] = []
    for chunk in chunks:
        if joined and any(_is_single(image_of_caption[rows]) for rows in (chunk, joined[-1])):
            joined[-1] = np.concatenate([joined[-1], chunk])
        else:
            joined.append(chunk)
    return joined


def _is_single(images: RowNumbers) -> bool:
    return bool((images == images[0]).all())


class PairDataset(Dataset[Batch]):
    """Pairs, indexed by arrays of caption rows."""

    def __init__(self, pairs: Pairs) -> None:
        """Store the features without the ids, which workers do not need."""
        self._images: Rows = pairs.images
        self._captions: Rows = pairs.captions
        self._image_of_caption = pairs.image_of_caption

    def __getitem__(self, key: tuple[int, RowNumbers]) -> Batch:
        """Return the batch of some caption rows with each of their images once."""
        epoch, rows = key
        images, image_of_caption = np.unique(self._image_of_caption[rows], return_inverse=True)
        seen = self._images
        if isinstance(seen, EpochRows):
            seen = seen.in_epoch(epoch)
        return Batch(
            torch.from_numpy(seen.take(images)),
            torch.from_numpy(self._captions.take(rows)),
            torch.from_numpy(image_of_caption),
        )


class _WithErrors(Dataset[Any]):
    """A dataset that returns errors of a user or the system: from a worker, one that is raised has
    a traceback as its text."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._dataset[key]
        except (PipelineError, OSError) as error:
            return error


@dataclass(frozen=True)
class _Arrays:
    """A batch as arrays, which travel through a pipe; tensors need shared memory."""

    kind: type[TensorBatch]
    arrays: list[np.ndarray[Any, Any]]

    @classmethod
    def unless_shared(cls, batch: Any) -> Any:
        """Move a batch of a worker to shared memory, or return its arrays if that is full.

        Later, torch would fail in a thread that nobody waits for, and the batch would never come.
        """
        if not isinstance(batch, TensorBatch):
            return batch
        try:
            for tensor in vars(batch).values():
                tensor.share_memory_()
        except RuntimeError:
            return cls(type(batch), [tensor.numpy() for tensor in vars(batch).values()])
        return batch


class BatchLoader:
    """Iterable over the batches of one epoch after another, on a device."""

    def __init__(
        self,
        dataset: Dataset[Any],
        epoch: Callable[[], Iterable[Any]],
        workers: int,
        device: torch.device,
    ) -> None:
        """Load the batches of `dataset` whose keys `epoch` draws; workers start on first use."""
        self._device = device
        try:
            # Tried here, for torch's iterator cannot be deleted if it fails.
            _ = multiprocessing.Lock() if workers else None
        except OSError as error:
            raise WorkerEnded(
                f"processes that load batches need semaphores in /dev/shm ({error.strerror}); make "
                "it writable, or use `workers=0`, which loads in this process"
            ) from error
        self._loader = DataLoader(
            _WithErrors(dataset),
            batch_size=None,
            collate_fn=_Arrays.unless_shared if workers else None,
            # Keys are drawn in this process, so that they do not depend on the worker count.
            sampler=_Epoch(epoch),
            num_workers=workers,
            # A new worker would verify the features again.
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            worker_init_fn=_leave_interrupts_to_the_parent,
            # Without it, each epoch draws from torch's global generator, which dropout uses.
            generator=torch.Generator(),
        )

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            if isinstance(batch, Exception):
                raise batch
            if isinstance(batch, _Arrays):
                batch = batch.kind(*map(torch.from_numpy, batch.arrays))
            yield batch.to(self._device)


@contextmanager
def workers_that_end() -> Iterator[None]:
    """Explain that a worker of a loader was killed, which torch raises wherever this process is."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise WorkerEnded(
            f"a process that loads batches ended ({str(error).strip().partition(' It is')[0]}); "
            "most often memory or a disk was missing: use fewer workers (`workers=0` loads in this "
            "process), then run the same command again"
        ) from error


class _Epoch:
    """Iterable over the keys of one epoch after another."""

    def __init__(self, epoch: Callable[[], Iterable[Any]]) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        # A generator function, so that nothing is drawn before the first key: a loader with
        # workers calls `iter` twice for its first epoch and uses the second iterator.
        yield from self._epoch()


def _leave_interrupts_to_the_parent(worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
