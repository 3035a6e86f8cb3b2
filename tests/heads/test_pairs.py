"""Rows of features: in memory or from shards they are the same, and never NaN in silence."""

import pickle
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.datasets.manifest import ImageEntry
from pipeline.heads.inputs import (
    Side,
    caption_parts,
    require_averageable,
    require_grid,
    require_sequence,
    require_vectors,
)
from pipeline.heads.pairs import (
    ArrayRows,
    AveragedRows,
    FeatureRows,
    HeadError,
    float32_bytes,
    in_blocks,
    is_in_memory,
    join_pairs,
    mean_and_scale,
    with_features,
)
from pipeline.heads.words import known_words
from pipeline.shards.read import FailedRows, FeatureSet, MissingRows
from pipeline.text.catalogue import plan_encoder
from pipeline.text.fitted import Fitting, fit_parts
from pipeline.text.sequences import FIRST_WORD, WordSequence
from pipeline.text.vectors import load_vectors
from tests.heads.made import all_of, entries_of, pairs, write_features
from tests.shards.sample import build, ids


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_from_shards_are_those_in_memory(tmp_path: Path, dtype: str) -> None:
    source = pairs(40)
    images = all_of(source.images).astype(dtype)
    captions = all_of(source.captions)
    write_features(tmp_path / "i", source.image_ids[::-1], images[::-1], dtype=dtype)
    write_features(tmp_path / "c", source.caption_ids, captions)
    sets = FeatureSet(tmp_path / "i"), FeatureSet(tmp_path / "c")
    held = join_pairs(entries_of(source), *sets)
    lazy = join_pairs(entries_of(source), *sets, in_memory=4 * 40 * 12)
    assert [is_in_memory(r) for r in (held.images, lazy.images, lazy.captions)] == [
        True,
        False,
        False,
    ]
    assert (held.image_ids, held.caption_ids) == (source.image_ids, source.caption_ids)
    np.testing.assert_array_equal(held.owner, source.owner)
    for rows in (held.images, lazy.images, pickle.loads(pickle.dumps(lazy.images))):
        for asked in ([3, 3, 39, 0, 24, 25], [], [7]):
            taken = rows.take(np.array(asked, np.int64))
            assert taken.dtype == np.float32
            assert taken.flags.writeable
            np.testing.assert_array_equal(taken, images[asked].astype(np.float32))
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
    with pytest.raises(HeadError, match=r"1 rows have NaN.*'0-7'"):
        join_pairs(entries_of(source), *sets)
    lazy = join_pairs(entries_of(source), *sets, in_memory=0)
    lazy.images.take(np.arange(7))
    for _ in range(2):
        with pytest.raises(HeadError, match=r"1 rows have NaN.*'0-7'"):
            lazy.images.take(np.array([2, 7]))
    with pytest.raises(HeadError, match=r"\[1\]"):
        ArrayRows(np.array([[0.0], [np.nan]], np.float32))


def test_failed_and_missing_rows_are_refused_or_left_out(tmp_path: Path) -> None:
    build(tmp_path / "s", 20, failed=(3, 17))
    features = FeatureSet(tmp_path / "s")
    with pytest.raises(FailedRows, match="not an image"):
        FeatureRows(features, ids(20))
    with pytest.raises(MissingRows, match="elsewhere"):
        FeatureRows(features, ["elsewhere"])
    entries = [ImageEntry(one, "x.jpg", "train", ("a",)) for one in ids(20)]
    kept = with_features(entries, features)
    assert [e.id for e in kept] == [one for n, one in enumerate(ids(20)) if n not in (3, 17)]
    silent = [ImageEntry("i", "i.jpg", "train", ())]
    with pytest.raises(HeadError, match="no pairs"):
        join_pairs(silent, features, features)


def test_blocks_and_statistics_equal_those_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    array = (1000 + rng.standard_normal((700, 3, 40, 60))).astype(np.float32)
    array[::7] *= 3
    rows = ArrayRows(array)
    assert float32_bytes(rows) == array.nbytes
    blocks = list(in_blocks(rows))
    assert len(blocks) > 1
    np.testing.assert_array_equal(np.concatenate(blocks), array)
    assert {len(block) for block in in_blocks(rows, 33)} == {33, 700 % 33}
    mean, scale = mean_and_scale(rows)
    wide = array.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean(axis=0), rtol=1e-13)
    assert scale == pytest.approx(np.sqrt(np.square(wide - wide.mean(axis=0)).mean()), rel=1e-12)
    assert mean_and_scale(ArrayRows(array[:1]))[1] == 0.0


def test_averaged_captions_equal_a_loop() -> None:
    source = pairs(9, captions=3)
    owner = np.repeat(np.arange(5), [1, 7, 5, 2, 12])
    features = all_of(source.captions)
    rows = AveragedRows(source.captions, owner)
    assert (len(rows), rows.row_shape) == (27, (8,))
    expected = np.stack([features[np.flatnonzero(owner == o)[:5]].mean(axis=0) for o in owner])
    np.testing.assert_allclose(all_of(rows), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rows.take(np.array([26, 0, 26])), all_of(rows)[[26, 0, 26]])
    assert rows.digest() != source.captions.digest()


def side(recipe: dict[str, object], *shape: int) -> Side:
    return Side(shape, {"name": "made", **recipe}, "0" * 16, "none")


def test_caption_parts_and_what_heads_may_ask_of_them() -> None:
    mean: dict[str, object] = {"encoder": "mean", "dim": 50}
    sequence: dict[str, object] = {"encoder": "sequence", "dim": 20, "num_ids": 99}
    both = side({"encoder": "concatenation", "parts": [mean, sequence]}, 70)
    parts = caption_parts(both)
    assert [(p.kind, p.columns, p.dim) for p in parts] == [
        ("mean", slice(0, 50), 50),
        ("sequence", slice(50, 70), 20),
    ]
    assert caption_parts(side({}, 3))[0].columns == slice(0, 3)
    assert require_sequence("h", side(sequence, 20)).recipe["num_ids"] == 99
    assert require_vectors("h", side(mean, 50)) == 50
    assert require_grid("h", side({}, 7, 7, 12)) == (49, 12)
    assert require_grid("h", side({}, 36, 12)) == (36, 12)
    for refusal, message in (
        (lambda: require_sequence("h", side(mean, 50)), "'h' reads captions word by word.*'mean'"),
        (lambda: require_sequence("h", both), "'mean' and 'sequence'"),
        (lambda: require_vectors("h", side(sequence, 20)), "word numbers mean nothing"),
        (lambda: require_vectors("h", side({}, 7, 7, 12)), r"shape \(7, 7, 12\)"),
        (lambda: require_grid("h", side({}, 12)), "are vectors"),
        (lambda: require_averageable(both), "cannot be averaged"),
        (lambda: caption_parts(side({"encoder": "concatenation", "parts": [mean]}, 51)), "have 50"),
    ):
        with pytest.raises(HeadError, match=message):
            refusal()


def test_words_get_their_vectors_by_number(tmp_path: Path) -> None:
    texts = ["a dog runs", "a dog zzzqx"]
    plan = plan_encoder("sequence", vocabulary="all")
    fitting = Fitting(texts, "made", "train", None, lambda line: None)
    encoder = fit_parts(plan, tmp_path / "e", fitting, texts)
    facts = side(encoder.recipe(), encoder.dim)
    known = known_words(facts, tmp_path / "e", "glove-6b-50d")
    assert isinstance(encoder, WordSequence)
    assert known.rows.shape == (encoder.num_ids, 50)
    vectors = load_vectors("glove-6b-50d", {"dog"})
    number = encoder.vocabulary.index["dog"] + FIRST_WORD
    np.testing.assert_array_equal(known.rows[number], vectors.matrix[vectors.index["dog"]])
    unknown = encoder.vocabulary.index["zzzqx"] + FIRST_WORD
    assert np.isnan(known.rows[[0, 1, 2, 3, unknown]]).all()
    assert np.isfinite(known.rows).all(axis=1).sum() == 3
    assert known.missing == ("zzzqx",)
    with pytest.raises(HeadError, match="of 99; run"):
        known_words(side({**encoder.recipe(), "num_ids": 99}, encoder.dim), tmp_path / "e", "x")
