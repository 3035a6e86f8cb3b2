"""Batches: what an epoch holds, and that no batch is without a negative."""

import errno
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch

from pipeline.heads import HeadError
from pipeline.heads.inputs.batches import (
    Batch,
    BatchLoader,
    PairDataset,
    WorkerEnded,
    batches_with_siblings,
    captions_with_drawn,
    one_caption_each,
    random_images,
    require_two_images,
    shuffled_captions,
    workers_that_end,
)
from tests.heads.factories import pairs

Sampler = Callable[
    [npt.NDArray[np.int64], int, np.random.Generator], Iterator[npt.NDArray[np.int64]]
]
OWNER = np.repeat(np.arange(6), [3, 1, 2, 5, 1, 2])


def epoch(sampler: Sampler, batch_size: int, seed: int = 0) -> list[npt.NDArray[np.int64]]:
    return list(sampler(OWNER, batch_size, np.random.default_rng(seed)))


@pytest.mark.parametrize("batch_size", [1, 2, 4, 5, 7, 13, 100])
@pytest.mark.parametrize(
    "sampler", [batches_with_siblings, one_caption_each, random_images, shuffled_captions]
)
def test_rows_are_distinct_ascending_and_never_of_one_image(
    sampler: Sampler, batch_size: int
) -> None:
    batches = epoch(sampler, batch_size)
    for rows in batches:
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()
        assert len(np.unique(OWNER[rows])) >= 2
    assert [b.tolist() for b in epoch(sampler, batch_size)] == [b.tolist() for b in batches]
    if 1 < batch_size < 6:
        assert [b.tolist() for b in epoch(sampler, batch_size, 1)] != [b.tolist() for b in batches]


@pytest.mark.parametrize("batch_size", [1, 4, 14, 100])
def test_captions_are_drawn_uniformly_among_those_of_other_images(batch_size: int) -> None:
    rng, k, counts = np.random.default_rng(0), 3, np.zeros((len(OWNER), len(OWNER)))
    for _ in range(400):
        seen: list[int] = []
        for rows in captions_with_drawn(OWNER, batch_size, k, rng):
            pairs = len(rows) // (1 + k)
            own, drawn = rows[:pairs], rows[pairs:].reshape(pairs, k)
            seen += own.tolist()
            np.add.at(counts, (own[:, None], drawn), 1)
        assert sorted(seen) == list(range(len(OWNER)))
    same = OWNER[:, None] == OWNER
    assert (counts[same] == 0).all()
    expected = 400 * k / (~same).sum(axis=1, keepdims=True)
    assert (np.abs(counts - expected)[~same] < 5 * np.sqrt(expected.max())).all()


@pytest.mark.parametrize("batch_size", [1, 4, 7, 100])
def test_siblings_are_added_as_a_loop_adds_them(batch_size: int) -> None:
    sampled: list[int] = []
    for rows in epoch(batches_with_siblings, batch_size):
        for image in np.unique(OWNER[rows]):
            here = int((OWNER[rows] == image).sum())
            assert here >= min(2, int((image == OWNER).sum()))
        sampled += rows.tolist()
    assert set(sampled) == set(range(len(OWNER)))

    rng = np.random.default_rng(0)
    order = rng.permutation(len(OWNER))
    for start, rows in zip(range(0, 14, 4), epoch(batches_with_siblings, 4), strict=True):
        chosen = order[start : start + 4]
        siblings = []
        for image in np.unique(OWNER[chosen]):
            free = [r for r in np.flatnonzero(image == OWNER) if r not in chosen]
            if free:
                siblings.append(free[int(rng.integers(len(free)))])
        assert rows.tolist() == sorted([*chosen.tolist(), *siblings])


def test_an_epoch_is_all_images_or_all_captions_or_as_many_batches() -> None:
    once = np.concatenate(epoch(one_caption_each, 4))
    assert sorted(OWNER[once]) == list(range(6))
    assert [len(b) for b in epoch(one_caption_each, 4)] == [4, 2]
    assert [len(b) for b in epoch(one_caption_each, 5)] == [6], "one image would be left alone"
    every = np.concatenate(epoch(shuffled_captions, 4))
    assert sorted(every) == list(range(14))
    drawn = epoch(random_images, 4)
    assert [len(b) for b in drawn] == [4, 4, 4, 4]
    assert all(len(np.unique(OWNER[b])) == 4 for b in drawn)
    assert [len(b) for b in epoch(random_images, 100)] == [6]


def test_every_caption_of_an_image_is_drawn_equally_often() -> None:
    rng = np.random.default_rng(0)
    drawn = [rows for _ in range(3000) for rows in one_caption_each(OWNER, 6, rng)]
    counts = np.bincount(np.concatenate(drawn), minlength=14)
    expected = 3000 / np.bincount(OWNER)[OWNER]
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected)).all()


class Faulty(PairDataset):
    """Pairs, of which the last batch has a fault of its worker."""

    fault = "none"

    def __getitem__(self, key: tuple[int, npt.NDArray[np.int64]]) -> Batch:
        if key[0] == 1 and self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if key[0] == 1 and self.fault == "unmounted":
            raise OSError(errno.EIO, "Input/output error", "features.h5")
        return super().__getitem__(key)


def loaded(fault: str, workers: int) -> list[Batch]:
    data = Faulty(pairs(6))
    data.fault = fault
    keys = [(0, np.arange(4)), (1, np.arange(2, 6))]
    with workers_that_end():
        return list(BatchLoader(data, lambda: keys, workers, torch.device("cpu")))


def test_a_full_shared_memory_changes_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches then come through a pipe. Before, the first one was waited for without end."""

    def full(tensor: torch.Tensor) -> None:
        raise RuntimeError("unable to allocate shared memory(shm): No space left on device (28)")

    expected = loaded("none", 0)
    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    for batch, own in zip(loaded("none", 1), expected, strict=True):
        for name, tensor in vars(own).items():
            torch.testing.assert_close(getattr(batch, name), tensor, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("fault", "error", "reason"),
    [
        ("killed", WorkerEnded, r"loads batches ended \(DataLoader worker"),
        ("unmounted", OSError, "Input/output error"),
    ],
)
def test_a_fault_of_a_worker_is_named(fault: str, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        loaded(fault, 1)


def test_a_machine_without_semaphores_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(multiprocessing, "Lock", refused)
    assert len(loaded("none", 0)) == 2
    with pytest.raises(WorkerEnded, match=r"in /dev/shm \(Read-only file system\).*`workers=0`"):
        loaded("none", 1)


def test_one_image_alone_is_refused() -> None:
    require_two_images(pairs(2))
    with pytest.raises(HeadError, match="at least 2"):
        require_two_images(pairs(1))
