"""A feature set as Python, numpy, torch and pandas see it, with rows that failed."""

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, StackDataset

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.builder.arrays import write_features
from pipeline.store.errors import MissingPackage, UnexpectedType
from pipeline.store.shards.feature_set import FailedRows, FeatureSet, MissingRows
from tests.store.shards.factories import SHAPE, build, ids

ROWS, FAILED = 25, (3, 17)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("features") / "made"
    build(out, ROWS, failed=FAILED)
    return out


@pytest.fixture
def features(folder: Path) -> FeatureSet:
    return FeatureSet(folder)


def number_of(row_id: str) -> int:
    return int(row_id[:-4].rpartition("-")[2])


def test_it_is_a_mapping_of_ids_to_rows(features: FeatureSet) -> None:
    everything = features.read(allow_failed=True)
    assert len(features) == ROWS
    assert features.shape == everything.shape == (ROWS, *SHAPE)
    assert features.dtype == everything.dtype == np.float32
    assert list(features) == list(features.keys()) == list(features.ids)
    assert set(np.flatnonzero(~features.ok)) == {
        at for at, name in enumerate(features.ids) if number_of(name) in FAILED
    }
    for at, (name, row) in enumerate(features.items()):
        assert name in features
        for key in (name, at, at - ROWS, np.int64(at)):
            np.testing.assert_array_equal(features[key], row)
        np.testing.assert_array_equal(everything[at], row)
        assert np.isnan(row).all() == (number_of(name) in FAILED)
    assert "none" not in features
    assert 0 not in features
    np.testing.assert_array_equal([*features.values()], everything)
    assert {*dict(features)} == {*features.ids}


@pytest.mark.parametrize(
    "key",
    [
        slice(None), slice(3, 9), slice(None, None, -4), slice(0, 0), [4, -1, 4], [], np.arange(5),
        np.arange(ROWS) % 3 == 0, [True] * ROWS,
    ],
)  # fmt: skip
def test_positions_are_those_of_numpy(key: Any, features: FeatureSet) -> None:
    np.testing.assert_array_equal(features[key], np.asarray(features)[key])


def test_ids_select_rows_in_their_order(features: FeatureSet) -> None:
    some = [features.ids[at] for at in (20, 0, 20)]
    for key in (some, tuple(some), np.array(some)):
        np.testing.assert_array_equal(features[key], features[[20, 0, 20]])
    np.testing.assert_array_equal(features.read(some[0]), features[20])
    np.testing.assert_array_equal(features.read(iter(some)), features[some])
    assert features.read([]).shape == (0, *SHAPE)


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("none.jpg", MissingRows, "no rows for 1 of 1 ids"),
        (["none.jpg"], KeyError, "no rows for 1 of 1 ids"),
        (ROWS, IndexError, "row 25 is out of range: there are 25"),
        (-ROWS - 1, IndexError, "row -26 is out of range"),
        ([0, ROWS], IndexError, "row 25 is out of range"),
        ([True], IndexError, "found a mask of 1 bools, expected 25"),
        ((0, 1), UnexpectedType, "found the tuple"),
        (1.0, TypeError, "found float"),
        (True, UnexpectedType, "found bool"),
        ([0, "a"], UnexpectedType, "found list"),
        (None, UnexpectedType, "found NoneType"),
    ],
)
def test_wrong_keys_are_refused(
    key: Any, error: type[Exception], message: str, features: FeatureSet
) -> None:
    with pytest.raises(error, match=message):
        features[key]


def test_failed_rows_are_refused_or_nan_and_never_left_out(features: FeatureSet) -> None:
    with pytest.raises(FailedRows, match="2 of 25 requested rows have no features"):
        features.read()
    with pytest.raises(FailedRows):
        features.torch_dataset()
    assert len(features.torch_dataset(allow_failed=True)) == ROWS
    for rows in (np.asarray(features), features[:], features.read(allow_failed=True)):
        assert rows.shape == features.shape
        np.testing.assert_array_equal(np.isnan(rows).all(axis=(1, 2)), ~features.ok)
    assert np.asarray(features, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="always a copy"):
        np.asarray(features, copy=False)
    assert not np.isnan(features[features.ok]).any()


def test_its_text_says_what_it_is(features: FeatureSet, folder: Path) -> None:
    assert repr(features) == f"<FeatureSet made (25, 2, 3) float32, 2 failed, in {folder}>"
    some = features.torch_dataset(features.ids[:1])
    assert repr(some) == f"<FeatureDataset (1, 2, 3) float32 of {features!r}>"
    assert "(25, 2, 3) float32, 2 failed of" in repr(features.torch_dataset(allow_failed=True))


# Spawned workers read it in the tests of the trainer.
@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork")])
def test_data_loaders_read_it(workers: int, context: str | None, features: FeatureSet) -> None:
    good = [features.ids[at] for at in np.flatnonzero(features.ok)[::-1].tolist()]
    dataset = features.torch_dataset(good)
    loader = DataLoader(
        StackDataset(x=dataset, id=good),  # type: ignore[arg-type]
        batch_size=4,
        num_workers=workers,
        multiprocessing_context=context,
    )
    batches = list(loader)
    assert [name for batch in batches for name in batch["id"]] == good
    found = torch.cat([batch["x"] for batch in batches])
    np.testing.assert_array_equal(found.numpy(), features.read(good))
    any_dataset: Any = dataset
    plain: Any = DataLoader(
        any_dataset, batch_size=None, num_workers=workers, multiprocessing_context=context
    )
    np.testing.assert_array_equal(next(iter(plain)), features[good[0]])


def test_a_dataset_is_a_sequence_of_rows(features: FeatureSet) -> None:
    good = [features.ids[at] for at in np.flatnonzero(features.ok).tolist()]
    chosen = [good[7], good[2], good[7]]
    dataset = features.torch_dataset(iter(chosen))
    assert (len(dataset), dataset.shape, dataset.dtype) == (3, (3, *SHAPE), np.float32)
    assert dataset.ok.all()
    np.testing.assert_array_equal(np.asarray(dataset), features.read(chosen))
    np.testing.assert_array_equal(list(dataset), features.read(chosen))
    np.testing.assert_array_equal(dataset.__getitems__([2, 1]), features.read(chosen)[[2, 1]])
    np.testing.assert_array_equal(dataset[good[2]], features[good[2]])
    np.testing.assert_array_equal(dataset[-1], features[good[7]])
    with pytest.raises(IndexError):
        dataset[3]
    with pytest.raises(KeyError, match="does not select"):
        dataset[good[0]]
    again = pickle.loads(pickle.dumps(dataset))
    assert list(again.ids) == chosen
    np.testing.assert_array_equal(again[:], dataset[:])
    assert len(pickle.dumps(dataset)) < 500
    dataset[0][:] = 0
    np.testing.assert_array_equal(dataset[0], features[good[7]])
    empty = features.torch_dataset([])
    assert (len(empty), empty[:].shape) == (0, (0, *SHAPE))


def manifest(names: Sequence[str]) -> Manifest:
    entries = [
        ImageEntry(name, name, "test" if at % 3 else "train", (f"image {at}", "again"))
        for at, name in enumerate(names)
    ]
    return Manifest("made", Path("photos"), entries, "CC0", "drawn", {})


def test_a_split_is_that_of_its_images_or_captions(features: FeatureSet, tmp_path: Path) -> None:
    dataset = manifest(features.ids)
    expected = [name for at, name in enumerate(features.ids) if at % 3]
    assert list(features.split("test", dataset, allow_failed=True).ids) == expected
    with pytest.raises(FailedRows):
        features.split("test", dataset)
    captions = dataset.captions()
    rows = np.random.default_rng(0).random((len(captions.ids), 4), np.float32)
    write_features(tmp_path / "text", captions.ids, rows, recipe={"name": "mine"})
    text = FeatureSet(tmp_path / "text").split("test", dataset)
    assert list(text.ids) == [f"{name}#{k}" for name in expected for k in (0, 1)]
    with pytest.raises(DatasetError, match="no split 'val'"):
        features.split("val", dataset)
    other = manifest(["other.jpg", "b.jpg"])
    with pytest.raises(MissingRows):
        features.split("train", other)


def test_a_table_has_a_row_for_each_id(
    features: FeatureSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed: extra pandas")
    table = features.to_pandas()
    assert list(table.index) == list(features.ids)
    assert table.index.name == "id"
    np.testing.assert_array_equal(table.to_numpy(), features[:].reshape(ROWS, 6))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackage, match=r"caption-feature-pipeline\[pandas\]"):
        features.to_pandas()


def test_a_manifest_is_a_sequence_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ids(9)
    dataset = manifest(names)
    assert len(dataset) == 9
    assert list(dataset) == list(dataset.entries)
    assert dataset[names[4]] == dataset[4] == dataset[-5]
    assert [entry.id for entry in dataset[2:4]] == list(dataset.ids[2:4])
    assert names[0] in dataset
    assert dataset[0] in dataset
    assert "none" not in dataset
    for wrong, error in (("none", KeyError), ("none", DatasetError), (9, IndexError)):
        with pytest.raises(error):
            dataset[wrong]
    test = dataset.split("test")
    assert (test.counts, len(test), test.name) == ({"test": 6}, 6, "made")
    assert list(test.captions().ids) == list(dataset.captions("test").ids)
    assert test.split("test") == test
    with pytest.raises(DatasetError, match="no split 'train'"):
        test.split("train")
    assert repr(dataset) == (
        "<Manifest made: 9 images (train 3, test 6), 18 captions, root photos>"
    )
    pytest.importorskip("pandas", reason="pandas is not installed: extra pandas")
    table = dataset.to_pandas()
    assert table.loc[names[1]].to_dict() == {
        "file": names[1],
        "split": "test",
        "captions": ("image 1", "again"),
    }
