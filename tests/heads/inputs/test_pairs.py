"""Rows of features and pairs of them: in memory or from shards the same, never NaN in silence."""

import pickle
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.heads import HeadError
from pipeline.heads.inputs.averaged import AveragedRows
from pipeline.heads.inputs.feature_rows import (
    ArrayRows,
    FeatureRows,
    float32_bytes,
    in_blocks,
    is_in_memory,
)
from pipeline.heads.inputs.pairs import join_pairs, with_features
from pipeline.store.shards.feature_set import FailedRows, FeatureSet, MissingRows
from tests.heads.factories import all_of, entries_of, pairs, write_features
from tests.store.shards.factories import build, ids


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_from_shards_are_those_in_memory(tmp_path: Path, dtype: str) -> None:
    source = pairs(40)
    images = all_of(source.images).astype(dtype)
    captions = all_of(source.captions)
    write_features(tmp_path / "i", source.image_ids[::-1], images[::-1], dtype=dtype)
    write_features(tmp_path / "c", source.caption_ids[::-1], captions[::-1])
    sets = FeatureSet(tmp_path / "i"), FeatureSet(tmp_path / "c")
    held = join_pairs(entries_of(source), *sets)
    lazy = join_pairs(entries_of(source), *sets, in_memory=4 * 40 * 12)
    assert [is_in_memory(r) for r in (held.images, lazy.images, lazy.captions)] == [
        True,
        False,
        False,
    ]
    assert (held.image_ids, held.caption_ids) == (source.image_ids, source.caption_ids)
    np.testing.assert_array_equal(held.image_of_caption, source.image_of_caption)
    for rows in (held.images, lazy.images, pickle.loads(pickle.dumps(lazy.images))):
        for asked in ([3, 3, 39, 0, 24, 25], [], [7]):
            taken = rows.take(np.array(asked, np.int64))
            assert taken.dtype == np.float32
            assert taken.flags.writeable
            np.testing.assert_array_equal(taken, images[asked].astype(np.float32))
    for rows in (held.captions, lazy.captions):
        np.testing.assert_array_equal(all_of(rows), captions)
    assert lazy.digest() == join_pairs(entries_of(source), *sets, in_memory=0).digest()
    assert lazy.digest() != join_pairs(entries_of(source)[1:], *sets, in_memory=0).digest()


def test_rows_that_are_not_finite_are_refused_by_name(tmp_path: Path) -> None:
    source = pairs(30)
    write_features(tmp_path / "c", source.caption_ids, all_of(source.captions))
    write_features(tmp_path / "i", source.image_ids, all_of(source.images))
    # Our writer refuses such rows; somebody else's may not.
    with h5py.File(tmp_path / "i" / "shard-00000-of-00002.h5", "r+") as file:
        file["features"][7, 3] = np.inf
        file["crc32"][7] = zlib.crc32(file["features"][7])
    sets = FeatureSet(tmp_path / "i"), FeatureSet(tmp_path / "c")
    with pytest.raises(HeadError, match=r"1 row has NaN.*'0-7'"):
        join_pairs(entries_of(source), *sets)
    lazy = join_pairs(entries_of(source), *sets, in_memory=0)
    lazy.images.take(np.arange(7))
    for _ in range(2):
        with pytest.raises(HeadError, match=r"1 row has NaN.*'0-7'"):
            lazy.images.take(np.array([2, 7]))
    with pytest.raises(HeadError, match=r"\[1\]"):
        ArrayRows(np.array([[0.0], [np.nan]], np.float32))


def test_failed_and_missing_rows_are_refused(tmp_path: Path) -> None:
    build(tmp_path / "s", 20, failed=(3, 17))
    features = FeatureSet(tmp_path / "s")
    with pytest.raises(FailedRows, match="not an image"):
        FeatureRows(features, ids(20))
    with pytest.raises(MissingRows, match="elsewhere"):
        FeatureRows(features, ["elsewhere"])


def test_blocks_are_all_rows_in_order() -> None:
    array = np.random.default_rng(0).standard_normal((700, 3, 40, 60), np.float32)
    rows = ArrayRows(array)
    assert float32_bytes(rows) == array.nbytes
    blocks = list(in_blocks(rows))
    assert len(blocks) > 1
    np.testing.assert_array_equal(np.concatenate(blocks), array)
    assert {len(block) for block in in_blocks(rows, 33)} == {33, 700 % 33}


def test_images_without_features_or_captions_take_no_part(tmp_path: Path) -> None:
    build(tmp_path / "s", 20, failed=(3, 17))
    features = FeatureSet(tmp_path / "s")
    entries = PackedEntries.of(
        ImageEntry(image_id, "x.jpg", "train", ("a",)) for image_id in ids(20)
    )
    kept = with_features(entries, features)
    assert [e.id for e in kept] == [
        image_id for n, image_id in enumerate(ids(20)) if n not in (3, 17)
    ]
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
    assert (len(rows), rows.row_shape) == (5, (8,))
    expected = np.stack(
        [features[np.flatnonzero(image_of_caption == o)[:5]].mean(axis=0) for o in range(5)]
    )
    np.testing.assert_allclose(all_of(rows), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rows.take(np.array([4, 0, 4])), all_of(rows)[[4, 0, 4]])
    assert rows.digest() != source.captions.digest()
