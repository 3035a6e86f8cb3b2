"""Pairs: images that have features and captions, and captions averaged over their image."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets.manifest import ImageEntry
from pipeline.heads.data.pairs import AveragedRows, join_pairs, with_features
from pipeline.heads.errors import HeadError
from pipeline.shards.feature_set import FeatureSet
from tests.heads.factories import all_of, pairs
from tests.shards.factories import build, ids


def test_images_without_features_or_captions_take_no_part(tmp_path: Path) -> None:
    build(tmp_path / "s", 20, failed=(3, 17))
    features = FeatureSet(tmp_path / "s")
    entries = [ImageEntry(one, "x.jpg", "train", ("a",)) for one in ids(20)]
    kept = with_features(entries, features)
    assert [e.id for e in kept] == [one for n, one in enumerate(ids(20)) if n not in (3, 17)]
    with pytest.raises(HeadError, match="none of the 1 images has features"):
        with_features(entries[3:4], features)
    silent = [ImageEntry("i", "i.jpg", "train", ())]
    with pytest.raises(HeadError, match="no pairs"):
        join_pairs(silent, features, features)


def test_averaged_captions_equal_a_loop() -> None:
    source = pairs(9, captions=3)
    image_of_caption = np.repeat(np.arange(5), [1, 7, 5, 2, 12])
    features = all_of(source.captions)
    rows = AveragedRows(source.captions, image_of_caption)
    assert (len(rows), rows.row_shape) == (27, (8,))
    expected = np.stack(
        [features[np.flatnonzero(image_of_caption == o)[:5]].mean(axis=0) for o in image_of_caption]
    )
    np.testing.assert_allclose(all_of(rows), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rows.take(np.array([26, 0, 26])), all_of(rows)[[26, 0, 26]])
    assert rows.digest() != source.captions.digest()
