"""Columns of the user's own: kept of every kind of table, apart from the manifest."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import METADATA_FILE, read_description, read_manifest
from pipeline.datasets.metadata import read_metadata
from pipeline.datasets.prepare import prepare

RECORDS: list[dict[str, Any]] = [
    {"path": "a.jpg", "caption": "one", "split": "train", "year": 2019, "tags": ["x", "y"]},
    {"path": "a.jpg", "caption": "two", "split": "train", "year": 2019, "tags": ["x", "y"]},
    {"path": "b.jpg", "caption": "one", "split": "test", "year": 2020.5, "tags": None},
]
PLAIN = [{name: row[name] for name in ("path", "caption", "split")} for row in RECORDS]
EXPECTED = {"a.jpg": {"year": 2019, "tags": ["x", "y"]}, "b.jpg": {"year": 2020.5}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def test_metadata_are_stored_apart_from_the_manifest(root: Path) -> None:
    made = prepare(RECORDS, root / "out", root=root)
    assert read_metadata(root / "out") == made.metadata == EXPECTED
    assert made.notes["metadata_columns"] == ["tags", "year"]
    assert made.split("test").metadata == {"b.jpg": EXPECTED["b.jpg"]}
    manifest = (root / "out" / "manifest.jsonl").read_bytes()
    prepare(PLAIN, root / "out", root=root)
    assert (root / "out" / "manifest.jsonl").read_bytes() == manifest
    assert not (root / "out" / METADATA_FILE).exists()
    assert "metadata" not in (root / "out" / "dataset.json").read_text()
    assert read_description(root / "out").metadata_sha256 is None
    assert read_metadata(root / "out") == {} == read_manifest(root / "out").metadata


def test_tables_of_all_kinds_have_the_same_metadata(root: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="reads Parquet")
    import pyarrow.parquet

    vectors = [[0.5, 1.0]] * 3
    table = arrow.Table.from_pylist([{**r, "v": v} for r, v in zip(RECORDS, vectors, strict=True)])
    pyarrow.parquet.write_table(table, root / "t.parquet")
    lines = [json.dumps({**row, "v": {"nested": 1}}) + "\n" for row in RECORDS]
    (root / "t.jsonl").write_text("".join(lines))
    frame = pandas.DataFrame(RECORDS).assign(v=vectors)
    for source in (root / "t.parquet", root / "t.jsonl", frame):
        made = prepare(source, root=root)
        assert made.metadata == EXPECTED
        assert made.notes["columns_ignored"] == ["v"]


def test_cells_of_text_stay_text_and_columns_of_captions_are_left_out(root: Path) -> None:
    lines = ("a.jpg,x,t,0,007,", "a.jpg,y,t,1,007,", "b.jpg,x,t,0, 8 ,")
    (root / "t.csv").write_text("\n".join(("path,caption,split,number,zip,gone", *lines)))
    made = prepare(root / "t.csv", root=root)
    assert made.metadata == {"a.jpg": {"zip": "007"}, "b.jpg": {"zip": "8"}}
    assert made.notes["columns_that_differ_within_an_image"] == ["number"]
    own = {"day": date(2020, 1, 2), "n": np.int64(3), "x": np.float32(0.5), "no": float("nan")}
    made = prepare([{**PLAIN[0], **own}, PLAIN[2]], root=root)
    assert made.metadata == {"a.jpg": {"day": "2020-01-02", "n": 3, "x": 0.5}}
    assert prepare([{**PLAIN[0], "x": float("inf")}], root=root).metadata == {}
    empty = {"day": pandas.NaT, "price": Decimal("NaN"), "name": " ", "n": 0, "no": False}
    made = prepare([{**PLAIN[0], **empty}], root=root)
    assert made.metadata == {"a.jpg": {"n": 0, "no": False}}


def test_changed_metadata_are_refused(root: Path) -> None:
    prepare(RECORDS, root / "out", root=root)
    path = root / "out" / METADATA_FILE
    path.write_text(path.read_text().replace("2019", "2018"))
    read_manifest(root / "out")
    with pytest.raises(DatasetError, match=r"does not match dataset\.json"):
        read_metadata(root / "out")
