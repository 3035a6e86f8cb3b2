"""Batches of regions and phrases, many to many, against sets of pairs."""

import numpy as np
import pytest

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.links import (
    LinkedBatch,
    LinkedDataset,
    RepeatedRows,
    linked_batches,
    links_of,
    require_two_phrases,
)
from pipeline.heads.inputs.pairs import Links, Lists, Pairs


def linked_pairs(
    regions: int = 12, phrases: int = 7, seed: int = 0, mined: int = 0, share: float = 0.3
) -> Pairs:
    """Pairs of some of the annotated (region, phrase); each row's first number is its own."""
    rng = np.random.default_rng(seed)
    annotated = rng.random((regions, phrases)) < share
    annotated[np.arange(regions), np.arange(regions) % phrases] = True
    region, phrase = np.nonzero(annotated)
    drawn = np.sort(rng.permutation(len(region))[: max(2, len(region) - 4)])
    drawn = np.union1d(drawn, np.unique(region, return_index=True)[1])
    rows = ArrayRows(np.column_stack([np.arange(phrases), np.ones(phrases)]).astype(np.float32))
    return Pairs(
        tuple(f"r{i}" for i in range(regions)),
        tuple(f"r{region[i]}~{phrase[i]}" for i in drawn),
        region[drawn],
        ArrayRows(np.column_stack([np.arange(regions), np.ones(regions)]).astype(np.float32)),
        RepeatedRows(rows, phrase[drawn]),
        Links(
            rows,
            phrase[drawn],
            Lists.of(region, phrase, regions),
            Lists.of(phrase, region, phrases),
            ArrayRows(np.full((mined, 2), 100, np.float32)) if mined else None,
            Lists.of(rng.integers(0, phrases, mined), np.arange(mined), phrases) if mined else None,
        ),
    )


@pytest.mark.parametrize(("size", "regions", "phrases"), [(3, 12, 7), (1, 5, 5), (99, 30, 4)])
def test_an_epoch_has_every_pair_once_and_further_ones(
    size: int, regions: int, phrases: int
) -> None:
    pairs = linked_pairs(regions, phrases)
    links = links_of(pairs)
    drawn = set(zip(pairs.image_of_caption.tolist(), links.phrase_of_caption.tolist(), strict=True))
    values, place = links.phrases_of_image.of_rows(np.arange(regions))
    annotated = set(zip(place.tolist(), values.tolist(), strict=True))
    rows = linked_batches(pairs, size, 0, np.random.default_rng(1))
    found: set[tuple[int, int]] = set()
    data = LinkedDataset(pairs)
    for key in rows:
        batch = data[key]
        assert isinstance(batch, LinkedBatch)
        image, phrase = batch.images[:, 0].int().tolist(), batch.captions[:, 0].int().tolist()
        assert (sorted(set(image)), sorted(set(phrase))) == (image, phrase)
        assert min(len(image), len(phrase)) >= 2
        naive = [[(i, p) in annotated for p in phrase] for i in image]
        assert batch.matches.tolist() == naive
        found |= {(i, p) for i in image for p in phrase if (i, p) in annotated}
    assert drawn <= found
    again = linked_batches(pairs, size, 0, np.random.default_rng(1))
    assert [k.images.tolist() for k in again] == [k.images.tolist() for k in rows]


def test_what_has_another_match_brings_it() -> None:
    """Batches of one pair: a phrase of several regions is never there with a single one."""
    pairs = linked_pairs(8, 8, share=0.5)
    links = links_of(pairs)
    for key in linked_batches(pairs, 2, 0, np.random.default_rng(0)):
        many = [p for p in key.phrases if np.diff(links.images_of_phrase.starts)[p] > 1]
        values = [links.images_of_phrase.of_rows(np.array([p]))[0] for p in many]
        shared = [len(np.intersect1d(v, key.images)) for v in values]
        assert np.mean(np.array(shared) > 1) > 0.5


def test_mined_boxes_come_with_their_phrase_and_match_nothing() -> None:
    pairs = linked_pairs(mined=40)
    links = links_of(pairs)
    assert links.mined_of_phrase is not None
    for key in linked_batches(pairs, 4, 3, np.random.default_rng(0)):
        own = set(links.mined_of_phrase.of_rows(key.phrases)[0].tolist())
        assert set(key.mined.tolist()) <= own
        batch = LinkedDataset(pairs)[key]
        assert isinstance(batch, LinkedBatch)
        mined = batch.images[:, 0] >= 100
        assert int(mined.sum()) == len(key.mined)
        assert not batch.matches[mined].any()
        assert batch.matches[~mined].any(dim=1).all()
        assert (batch.negatives[~mined] == ~batch.matches[~mined]).all()
        for row, region in zip(batch.negatives[mined], key.mined, strict=True):
            of = [region in links.mined_of_phrase.of_rows(np.array([p]))[0] for p in key.phrases]
            assert row.tolist() == of


def test_a_single_phrase_is_refused() -> None:
    with pytest.raises(HeadError, match="1 distinct phrases"):
        require_two_phrases(linked_pairs(4, 1))
