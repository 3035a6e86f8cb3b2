"""Training pairs of regions and phrases."""

from collections.abc import Sequence

import numpy as np

from pipeline.datasets.phrases import RegionPhrase
from pipeline.heads.inputs.feature_rows import FeatureRows, loaded
from pipeline.heads.inputs.links import RepeatedRows
from pipeline.heads.inputs.pairs import IN_MEMORY_BYTES, Links, Lists, Pairs
from pipeline.regions import RegionError
from pipeline.regions.methods import true_regions
from pipeline.regions.proposals import region_id
from pipeline.store.shards.feature_set import FeatureSet

REGIONS_A_PHRASE = 10
"""Maximum number of regions that a phrase is paired with (Wang et al. 2016, section 3.3)."""


def training_pairs(
    phrases: Sequence[RegionPhrase], truth: FeatureSet, texts: FeatureSet, seed: int
) -> Pairs:
    """Return the pairs of true regions and phrases, with all their links."""
    if not phrases:
        raise RegionError(
            "the training split has no phrase with a box; use a dataset with phrases, from "
            "`pipeline prepare entities`, `regions` or `scenes`"
        )
    keys = {phrase.key: None for phrase in phrases}
    phrase_row = {key: row for row, key in enumerate(keys)}
    numbers = true_regions(phrases)
    region_row: dict[str, int] = {}
    annotated: dict[tuple[int, int], None] = {}
    for phrase in phrases:
        for k in numbers[phrase.id]:
            region = region_row.setdefault(region_id(phrase.image, k), len(region_row))
            annotated.setdefault((region, phrase_row[phrase.key]))
    region, phrase_of = np.array(list(annotated), np.int64).T
    # Regions without a pair are left out; the links of the others include every phrase for them.
    drawn = _at_most(phrase_of, REGIONS_A_PHRASE, np.random.default_rng(seed))
    used = np.unique(region[drawn])
    new_row = np.full(len(region_row), -1)
    new_row[used] = np.arange(len(used))
    linked = new_row[region] >= 0
    links_region, links_phrase = new_row[region[linked]], phrase_of[linked]
    order = drawn[np.lexsort((phrase_of[drawn], region[drawn]))]
    names, key_of = list(region_row), list(keys)
    region_ids = tuple(names[row] for row in used)
    rows = loaded(FeatureRows(texts, key_of), IN_MEMORY_BYTES)
    return Pairs(
        region_ids,
        tuple(f"{names[region[at]]}~{key_of[phrase_of[at]]}" for at in order),
        new_row[region[order]],
        loaded(FeatureRows(truth, region_ids), IN_MEMORY_BYTES),
        RepeatedRows(rows, phrase_of[order]),
        Links(
            rows,
            phrase_of[order],
            Lists.of(links_region, links_phrase, len(used)),
            Lists.of(links_phrase, links_region, len(key_of)),
        ),
    )


def _at_most(group: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return ascending rows with at most `most` per group, sampled at random."""
    # A shuffle, then a stable sort by group: the first `most` of a group are a random sample.
    shuffled = rng.permutation(len(group))
    by_group = shuffled[np.argsort(group[shuffled], kind="stable")]
    counts = np.bincount(group)
    position = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(by_group[position < most])
