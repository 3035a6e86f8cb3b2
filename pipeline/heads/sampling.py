"""Which captions form a training batch."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


def batches_with_siblings(owner: Rows, batch_size: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Yield one epoch of caption rows, each batch filled up with siblings.

    Wang et al. 2016, section 2.2: all pairs once in random order, `batch_size` at a time; to
    each image of a batch one more of its sentences is added, other than those already there,
    if it has one. Batches thus vary in size, and the structure term is never empty.

    Parameters
    ----------
    owner : (captions,) the image row of each caption, ascending.
    batch_size : pairs before siblings are added.
    rng : its state is all that makes two epochs differ.

    Yields
    ------
    (rows,) int64
        Caption rows, ascending and distinct.
    """
    order = rng.permutation(len(owner))
    first = np.searchsorted(owner, np.arange(owner[-1] + 2))
    batches: list[Rows] = []
    for start in range(0, len(order), batch_size):
        chunk = order[start : start + batch_size]
        # One image alone has no negative, and no batch statistics.
        if batches and any(len(np.unique(owner[b])) < 2 for b in (chunk, batches[-1])):
            batches[-1] = np.concatenate([batches[-1], chunk])
        else:
            batches.append(chunk)
    for sampled in batches:
        chosen = set(sampled.tolist())
        siblings = []
        for image in np.unique(owner[sampled]):
            own = range(int(first[image]), int(first[image + 1]))
            free = [row for row in own if row not in chosen]
            if free:
                siblings.append(free[int(rng.integers(len(free)))])
        yield np.sort(np.concatenate([sampled, np.array(siblings, np.int64)]))
