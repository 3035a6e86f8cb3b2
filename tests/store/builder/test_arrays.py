"""Anybody's array becomes a feature set: what comes back, what is refused, what repeats."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from scipy import sparse

from pipeline.store.builder import arrays, unfinished_shard
from pipeline.store.builder.arrays import write_features
from pipeline.store.convert.merge import merge
from pipeline.store.progress import no_progress
from pipeline.store.shards.feature_set import read_features
from pipeline.store.shards.format import OtherShard, ShardError
from pipeline.store.shards.verify import verify
from tests.store.shards.factories import contents

RECIPE = {"name": "mine", "layer": 3}


def named(rows: int) -> list[str]:
    return [f"b/{rows - row}.jpg" for row in range(rows)]


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("rows", "dtype", "shape"),
    [
        *((rows, "float32", (2, 3)) for rows in (1, 2, 7, 23)),
        *((7, dtype, (2, 3)) for dtype in ("float16", "float64", ">f4")),
        *((7, "float16", shape) for shape in ((5,), (2, 2, 3))),
        (23, ">f4", (2, 2, 3)),
    ],
)
def test_rows_come_back_by_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, dtype: str, shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(arrays, "_BLOCK_BYTES", 50)
    given = values(rows, *shape, dtype=dtype)
    out = str(tmp_path / "out")
    index = write_features(out, named(rows), given, recipe=RECIPE, rows_per_shard=5, dataset="d")
    assert (index.rows, index.failed_rows) == (rows, 0)
    assert index.header.dtype == ("float16" if dtype == "float16" else "float32")
    assert index.header.axes.count(",") == len(shape)
    assert (index.header.recipe, index.header.weights) == (RECIPE, "unknown")
    features = read_features(out)
    asked = named(rows)[::-1]
    np.testing.assert_array_equal(features.read(asked), given[::-1].astype(index.header.dtype))
    assert verify(out).faults == []


def test_lists_and_hdf5_datasets_give_the_bytes_of_an_array(tmp_path: Path) -> None:
    given = values(4, 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=given)
        for name, source in (("array", given), ("list", given.tolist()), ("h5", dataset)):
            write_features(tmp_path / name / "out", named(4), source, recipe=RECIPE)
    assert contents(tmp_path / "list") == contents(tmp_path / "array") == contents(tmp_path / "h5")


def test_the_same_call_changes_nothing_and_other_values_are_refused(tmp_path: Path) -> None:
    given, out = values(7, 3), tmp_path / "out"
    write_features(out, named(7), given, recipe=RECIPE, rows_per_shard=3)
    before = contents(tmp_path)
    write_features(out, named(7), given, recipe=RECIPE, rows_per_shard=3)
    assert contents(tmp_path) == before
    other = given.copy()
    other[4, 1] += 1
    with pytest.raises(OtherShard, match=r"other values for id 'b/3.jpg' under the recipe 'mine'"):
        write_features(out, named(7), other, recipe=RECIPE)
    with pytest.raises(OtherShard, match="other values for id"):
        write_features(out, named(7), given, recipe=RECIPE, status=[0, 1, 0, 0, 0, 0, 0])
    with pytest.raises(OtherShard, match="another recipe"):
        write_features(out, named(7), given, recipe={"name": "yours"})
    with pytest.raises(OtherShard, match="7 rows"):
        write_features(out, named(8), values(8, 3), recipe=RECIPE)
    assert contents(tmp_path) == before


def test_a_stopped_call_goes_on_with_the_same_array_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "_BLOCK_BYTES", 24)
    monkeypatch.setattr(unfinished_shard, "FLUSH_SECONDS", 0.0)
    given = values(9, 3)
    write_features(tmp_path / "whole" / "out", named(9), given, recipe=RECIPE, rows_per_shard=4)
    out = tmp_path / "stopped" / "out"
    counts: list[int] = []

    def stop(done: int, total: int, failed: int) -> None:
        counts.append(done)
        if counts[-1] == 6:
            raise KeyboardInterrupt

    def write(array: np.ndarray, progress: Any = no_progress) -> None:
        write_features(out, named(9), array, recipe=RECIPE, rows_per_shard=4, progress=progress)

    with pytest.raises(KeyboardInterrupt):
        write(given, stop)
    counts.clear()
    with pytest.raises(KeyboardInterrupt):
        write(given + 1, stop)
    assert counts[0] == 0, "rows of another array are not taken over"
    counts.clear()
    write(given, lambda done, total, failed: counts.append(done))
    assert (counts[0], counts[-1]) == (6, 9), "finished rows are not written again"
    whole = contents(tmp_path / "whole" / "out")
    assert contents(out) == whole


def test_failed_rows_keep_their_ids_and_reasons(tmp_path: Path) -> None:
    given = values(3, 2)
    given[1] = np.nan
    for name, errors, reason in (("a", None, "missing"), ("b", ["", "no file", ""], "no file")):
        write_features(
            tmp_path / name, named(3), given, recipe=RECIPE, status=np.array([0, 2, 0]),
            errors=errors,
        )  # fmt: skip
        features = read_features(tmp_path / name)
        assert features.failures() == [("b/2.jpg", "missing", reason)]
        assert np.isnan(features.read(["b/2.jpg"], allow_failed=True)).all()
        assert verify(tmp_path / name).faults == []


def test_written_sets_merge(tmp_path: Path) -> None:
    given = values(4, 2)
    write_features(tmp_path / "a", named(4)[:3], given[:3], recipe=RECIPE)
    write_features(tmp_path / "b", named(4)[2:], given[2:], recipe=RECIPE)
    merge([tmp_path / "a", str(tmp_path / "b")], tmp_path / "c")
    np.testing.assert_array_equal(read_features(tmp_path / "c").read(named(4)), given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": named(2)}, "found 2 ids for 3 rows; pass one id per row"),
        ({"ids": [], "array": values(0, 2)}, "at least one row"),
        ({"ids": ["a", "b", "a"]}, "more than once"),
        ({"ids": ["a", "b", "../c"]}, "ids are relative paths"),
        ({"array": np.zeros((3, 2), np.int64)}, r"holds int64, expected floats .*astype"),
        ({"array": [["a"], ["b"], ["c"]]}, "expected floats"),
        ({"array": [[1.0], [2.0, 3.0], [1.0]]}, "same shape"),
        ({"array": np.zeros((3, 2), np.complex64)}, "holds complex64"),
        ({"array": np.zeros(3, np.float32)}, "reshape"),
        ({"array": np.zeros((3, 0), np.float32)}, "without empty axes"),
        ({"array": np.full((3, 2), np.nan)}, r"\['b/3.jpg', .* mark them as failed"),
        ({"array": np.full((3, 2), 1e300)}, "outside float32"),
        ({"array": np.full((3, 2), 1e-300)}, "outside float32"),
        ({"array": np.ma.ones((3, 2), np.float32)}, "the array is masked"),
        ({"array": sparse.eye_array(3, 2)}, "holds object"),
        ({"array": torch.zeros(3, 2, requires_grad=True)}, "not an array of numbers .*detach"),
        ({"status": [0, [1], 0]}, "status is not an array"),
        ({"recipe": "x"}, "has name None"),
        ({"recipe": {}}, "has name None"),
        ({"recipe": {"name": ""}}, "name how"),
        ({"recipe": {"name": "x", "net": object()}}, "values outside JSON"),
        ({"recipe": {"name": "x", "scale": float("nan")}}, "values outside JSON"),
        ({"status": [0, 1]}, "one of each per row"),
        ({"status": [0, 1, 0], "errors": [""]}, "one of each per row"),
        ({"status": [0, 7, 0]}, "unknown status 7; known: 0 ok, 1 unreadable"),
        ({"errors": ["", "why", ""]}, "exactly where the status is not 0"),
        ({"axes": "row"}, "does not match axes"),
        ({"array": np.zeros((3, 1, 1, 1, 1))}, "does not match axes None"),
        ({"weights_sha256": "x"}, "64 hex digits"),
        ({"rows_per_shard": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_a_feature_set_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"ids": named(3), "array": values(3, 2), "recipe": RECIPE} | changes
    ids, array = given.pop("ids"), given.pop("array")
    with pytest.raises(Exception, match=message) as caught:
        write_features(tmp_path / "x" / "out", ids, array, **given)
    assert isinstance(caught.value, ShardError) or "rows_per_shard" in changes
    assert not list(tmp_path.rglob("*"))
