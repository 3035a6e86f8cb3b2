"""Parquet and Arrow exports, read back by pyarrow: every row with its id, and nothing else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.builder.arrays import write_features
from pipeline.store.convert.export import export
from pipeline.store.errors import WrongUsage
from pipeline.store.files import OutputError
from pipeline.store.shards import feature_set as read
from pipeline.store.shards.feature_set import FailedRows, FeatureSet, MissingRows
from pipeline.store.shards.format import ShardError
from pipeline.store.shards.row_keys import images_of_rows
from tests.store.shards.factories import build, ids

ROWS = 23


@pytest.fixture
def features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureSet:
    """Rows (2, 3) of which 3 and 17 failed, read in blocks of two."""
    monkeypatch.setattr(read, "_BLOCK_BYTES", 48)
    build(tmp_path / "out", ROWS)
    return FeatureSet(tmp_path / "out")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Row n of 23 images is of split train, val or test, and has n % 3 captions."""
    entries = tuple(
        ImageEntry(
            name,
            name,
            ("train", "val", "test")[n % 3],
            tuple(f"“{n}”, {k}\n" for k in range(n % 3)),
        )
        for n, name in enumerate(ids(ROWS))
    )
    Manifest("made", tmp_path, entries, "CC0", "drawn", {}).write(tmp_path / "data")
    return tmp_path / "data"


def table_of(path: Path) -> pa.Table:
    return parquet.read_table(path) if path.suffix == ".parquet" else feather.read_table(path)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_are_in_the_asked_order_with_splits_and_captions(
    tmp_path: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str
) -> None:
    monkeypatch.setattr(read, "_BLOCK_BYTES", 48)
    build(tmp_path / "typed", ROWS, dtype=dtype)
    features = FeatureSet(tmp_path / "typed")
    asked = [ids(ROWS)[n] for n in (22, 0, 11, 5, 22)]
    assert export(features, tmp_path / "x" / name, ids=asked, dataset=dataset) == 5
    table = table_of(tmp_path / "x" / name)
    assert table.column_names == ["id", "split", "captions", "status", "reason", "vector"]
    assert table["id"].to_pylist() == asked
    assert table["split"].to_pylist() == ["val", "train", "test", "test", "val"]
    assert table["captions"].to_pylist() == [
        ["“22”, 0\n"], [], ["“11”, 0\n", "“11”, 1\n"], ["“5”, 0\n", "“5”, 1\n"], ["“22”, 0\n"],
    ]  # fmt: skip
    assert set(table["status"].to_pylist()) == {"ok"}
    kind = table.schema.field("vector").type
    assert (str(kind.value_type), kind.list_size) == (
        {"float32": "float", "float16": "halffloat"}[dtype],
        6,
    )
    vectors = table["vector"].combine_chunks().flatten().to_numpy().reshape(5, 2, 3)
    np.testing.assert_array_equal(vectors, features.read(asked))
    about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert json.loads(about["recipe"]) == features.index.header.recipe
    assert about["recipe_hash"] == features.recipe_hash
    assert json.loads(about["row_shape"]) == [2, 3]
    assert not list((tmp_path / "x").glob("*.part"))


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_failed_rows_are_refused_or_null_with_their_reason(
    features: FeatureSet, tmp_path: Path, name: str
) -> None:
    with pytest.raises(FailedRows):
        export(features, tmp_path / name)
    assert not (tmp_path / name).exists()
    export(features, tmp_path / name, allow_failed=True)
    table = table_of(tmp_path / name)
    assert table.column_names == ["id", "status", "reason", "vector"]
    assert table["id"].to_pylist() == features.ids
    failed = [n for n, vector in enumerate(table["vector"].to_pylist()) if vector is None]
    assert failed == [3, 17]
    assert [table["status"][n].as_py() for n in (2, 3)] == ["ok", "unreadable"]
    assert [table["reason"][n].as_py() for n in (2, 3)] == ["", "not an image"]


def test_parquet_is_streamed_and_the_same_each_time(features: FeatureSet, tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet", "a.arrow", "b.arrow"):
        export(features, tmp_path / name, allow_failed=True)
    assert parquet.ParquetFile(tmp_path / "a.parquet").num_row_groups == 12
    for kind in ("parquet", "arrow"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_captions_and_regions_have_the_split_of_their_image(tmp_path: Path, dataset: Path) -> None:
    image = ids(ROWS)[11]
    for kind, expected in (("#", [["“11”, 1\n"]]), ("@", [["“11”, 0\n", "“11”, 1\n"]])):
        out = tmp_path / f"set{ord(kind)}"
        _one_row(out, f"{image}{kind}1")
        export(out, out.with_suffix(".parquet"), dataset=dataset)
        table = parquet.read_table(out.with_suffix(".parquet"))
        assert (table["split"].to_pylist(), table["captions"].to_pylist()) == (["test"], expected)
    for row_id in (f"{image}#2", f"{image}x", "nowhere#0"):
        _one_row(tmp_path / "other" / row_id.replace("/", "-"), row_id)
        with pytest.raises(MissingRows, match="row "):
            export(
                tmp_path / "other" / row_id.replace("/", "-"), tmp_path / "y.parquet",
                dataset=dataset,
            )  # fmt: skip
    assert not list(tmp_path.glob("y.parquet*"))


def _one_row(out: Path, row_id: str) -> None:
    write_features(out, [row_id], np.ones((1, 4), np.float32), recipe={"name": "x"}, dataset="made")


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("x.csv", {}, r"none of the suffixes .*\.parquet"),
        ("x", {}, "choose the layout with `to="),
        ("x.npy", {"dataset": "data"}, "`dataset=.*` requires `to=parquet`"),
        ("x.parquet", {"repeat": 5}, "`repeat=.*` requires `to=npy`"),
    ],
)
def test_the_layout_follows_from_the_suffix_or_is_asked_for(
    features: FeatureSet, tmp_path: Path, out: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(WrongUsage, match=message):
        export(features, tmp_path / out, **options)


def test_places_that_cannot_be_written_are_refused(features: FeatureSet, tmp_path: Path) -> None:
    (tmp_path / "dir.parquet").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        export(features, tmp_path / "dir.parquet")
    with pytest.raises(ShardError, match="is a file of"):
        export(features, tmp_path / "out" / "index.json", to="parquet")


def test_a_number_beyond_64_bits_is_not_that_of_a_caption() -> None:
    ids = ["a#1", "a@2", f"a#{'9' * 5000}"]
    assert list(images_of_rows(ids, {"a"})) == [("a", "#", 1), ("a", "@", 2), (ids[2], "", 0)]
