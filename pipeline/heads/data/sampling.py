"""Which captions form a training batch: one epoch of caption rows at a time.

Every function takes `image_of_caption`, (captions,) int64, the ascending image row of each caption
where every image has one, and yields caption rows (n,) int64, ascending and distinct. The state of
`rng` is all that makes two epochs differ. A batch never has a single image, which would have no
negative and no batch statistics: such a batch is joined to the one before.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pipeline.heads.data.pairs import Pairs, first_captions_of
from pipeline.heads.data.rows import RowNumbers
from pipeline.heads.errors import HeadError


def require_two_images(pairs: Pairs) -> None:
    """Refuse training data that give no caption a negative.

    Raises
    ------
    HeadError
        There are fewer than two images.
    """
    if len(pairs.image_ids) < 2:
        raise HeadError(
            f"{len(pairs.image_ids)} training image found; at least 2 are needed, so that every "
            "caption has a negative"
        )


def batches_with_siblings(
    image_of_caption: RowNumbers, batch_size: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield all captions once in random order, each batch filled up with siblings.

    Wang et al. 2016, section 2.2: all pairs once in random order, `batch_size` at a time; to
    each image of a batch one more of its sentences is added, other than those already there,
    if it has one. Batches thus vary in size, and the structure term is never empty.
    """
    starts = first_captions_of(image_of_caption)
    counts = np.diff(starts)
    taken = np.zeros(len(image_of_caption), bool)
    chunks = _in_batches(rng.permutation(len(image_of_caption)), batch_size)
    for sampled in _without_single_images(chunks, image_of_caption):
        taken[sampled] = True
        images = np.unique(image_of_caption[sampled])
        # All captions of the images of the batch, image after image.
        number = counts[images]
        ends = np.cumsum(number)
        own = np.arange(ends[-1]) + np.repeat(starts[images] + number - ends, number)
        free = own[~taken[own]]
        num_free = np.bincount(image_of_caption[free], minlength=len(counts))[images]
        first_free = np.cumsum(num_free) - num_free
        having = num_free > 0
        drawn = rng.integers(num_free[having])
        siblings = free[first_free[having] + drawn]
        taken[sampled] = False
        yield np.sort(np.concatenate([sampled, siblings]))


def one_caption_each(
    image_of_caption: RowNumbers, batch_size: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield all images once in random order, each with one random caption.

    An epoch of order-embeddings (Vendrov et al. 2016).
    """
    rows = _random_captions(image_of_caption, rng)
    chunks = _in_batches(rows[rng.permutation(len(rows))], batch_size)
    for batch in _without_single_images(chunks, image_of_caption):
        yield np.sort(batch)


def shuffled_captions(
    image_of_caption: RowNumbers, batch_size: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield all captions once in random order.

    An epoch of VSE++ (Faghri et al. 2018). A batch may hold two captions of one image; deviation:
    they are then never negatives of each other or of their image, as they are there.
    """
    chunks = _in_batches(rng.permutation(len(image_of_caption)), batch_size)
    for batch in _without_single_images(chunks, image_of_caption):
        yield np.sort(batch)


def random_images(
    image_of_caption: RowNumbers, batch_size: int, rng: np.random.Generator
) -> Iterator[RowNumbers]:
    """Yield random distinct images with one random caption each, captions / batch_size times.

    An epoch of Word2VisualVec (Dong et al. 2018): as many batches as all captions would fill, but
    some images are met more often than others, or not at all. Where there are fewer images than
    `batch_size`, a batch holds each once.
    """
    images = int(image_of_caption[-1]) + 1
    for _ in range(-(-len(image_of_caption) // batch_size)):
        chosen = rng.choice(images, min(images, max(2, batch_size)), replace=False)
        yield np.sort(_random_captions(image_of_caption, rng)[chosen])


def _random_captions(image_of_caption: RowNumbers, rng: np.random.Generator) -> RowNumbers:
    """Return one random caption row of each image, (images,)."""
    starts = first_captions_of(image_of_caption)
    return starts[:-1] + rng.integers(np.diff(starts))


def _in_batches(rows: RowNumbers, batch_size: int) -> list[RowNumbers]:
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def _without_single_images(
    chunks: Sequence[RowNumbers], image_of_caption: RowNumbers
) -> list[RowNumbers]:
    """Join a chunk of a single image to the one before it."""
    joined: list[RowNumbers] = []
    for chunk in chunks:
        if joined and any(_is_single(image_of_caption[rows]) for rows in (chunk, joined[-1])):
            joined[-1] = np.concatenate([joined[-1], chunk])
        else:
            joined.append(chunk)
    return joined


def _is_single(images: RowNumbers) -> bool:
    return bool((images == images[0]).all())
