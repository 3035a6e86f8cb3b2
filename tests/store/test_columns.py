"""Columns are data: files, their readers and docs/format.md follow from one entry each."""

import ast
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from pyarrow import parquet

from pipeline.regions.localization import localized
from pipeline.retrieval import embedding_file
from pipeline.retrieval.quantised.codes import STORES
from pipeline.store import columns
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.columns import TEXT, Column
from pipeline.store.convert.export import export
from pipeline.store.convert.merge import merge
from pipeline.store.shards import layout
from pipeline.store.shards.describe import describe
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK, RowBlock, ShardError
from pipeline.store.shards.layout import REQUIRED_TEXTS, ROWS, SHARD, SHARDS
from pipeline.store.shards.side_by_side import write_view
from pipeline.store.shards.verify import verify
from tests.project import PROJECT
from tests.store.shards.factories import build, header

DURATION = Column(
    "seconds_of_test", "<f4", ("rows",), "seconds of a clip; 0: unknown", fill=0, optional=True
)


def written(folder: Path, name: str, ids: list[str], seconds: list[float] | None) -> FeatureSet:
    """Write vectors, of which some or all clips have a duration."""
    about = header(recipe={"name": name}, row_shape=(3,), axes="row, channel")
    others = {} if seconds is None else {DURATION.key: np.array(seconds, np.float32)}
    rows, status = np.eye(len(ids), 3, dtype=np.float32), np.full(len(ids), OK, np.uint8)
    crc32 = np.array([ord(row_id[0]) for row_id in ids], np.uint32)
    with ShardBuild(folder, about, ids, rows_per_shard=2) as work:
        block = RowBlock(rows, status, ("",) * len(ids), crc32, others)
        for span in work.pending():
            at = np.arange(span.start, span.stop)
            work.append(span.start, RowBlock.of(_Known(block), at, rows[at]))
        work.publish()
    return FeatureSet(folder)


class _Known:
    """A block with the checksums that `RowBlock.of` does not read."""

    def __init__(self, block: RowBlock) -> None:
        self.status, self.errors, self.sources = block.status, block.errors, block.sources
        self.crc32 = np.zeros(len(block), np.uint32)


def test_a_new_column_of_a_shard_is_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, seconds = ["a.mp4", "b.mp4", "c.mp4"], [0.0, 2.5, 4.0]
    before = written(tmp_path / "before", "x", ids, None)
    monkeypatch.setattr(layout, "COLUMNS", (*layout.COLUMNS, DURATION))
    without = written(tmp_path / "without", "x", ids, None)
    for entry in before.index.shards:
        assert (tmp_path / "without" / entry.file).read_bytes() == (
            tmp_path / "before" / entry.file
        ).read_bytes(), "a column without values changes nothing"
    assert without.sources[DURATION.key].tolist() == [0, 0, 0]
    one = written(tmp_path / "one", "x", ids, seconds)
    other = written(tmp_path / "other", "y", ids[::-1], [4.0, 2.5, 7.0])
    assert one.sources[DURATION.key].tolist() == seconds
    assert one.sources[DURATION.key].dtype == np.float32
    assert verify(tmp_path / "one").faults == []
    assert "seconds_of_test known of 2 of 3 rows" in describe(tmp_path / "one")
    more = written(tmp_path / "more", "x", ["d.mp4"], [9.0])
    merge([one, more], tmp_path / "merged", rows_per_shard=3)
    merged = FeatureSet(tmp_path / "merged")
    assert merged.sources[DURATION.key].tolist() == [*seconds, 9.0]
    with pytest.raises(ShardError, match="another seconds_of_test"):
        merge([one, without], tmp_path / "refused")
    write_view(tmp_path / "view", [one, other], "none")
    view = FeatureSet(tmp_path / "view").sources[DURATION.key]
    assert view.tolist() == [7.0, 2.5, 4.0], "the known value of either part"
    other.sources[DURATION.key][:] = 3
    with pytest.raises(ShardError, match=r"for 2 ids, first 'b.mp4'"):
        write_view(tmp_path / "view", [one, other], "none")
    for name in ("all.h5", "some.h5"):
        export(one, tmp_path / name, copy=name == "some.h5")
        with h5py.File(tmp_path / name) as file:
            assert file[DURATION.key][:].tolist() == seconds
    export(one, tmp_path / "x.parquet")
    assert parquet.read_table(tmp_path / "x.parquet")[DURATION.key].to_pylist() == seconds
    monkeypatch.undo()
    np.testing.assert_array_equal(FeatureSet(tmp_path / "one").read(ids), before.read(ids))


def literals(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_names_of_datasets_are_literals_of_one_module() -> None:
    paths = [p for p in PROJECT.glob("pipeline/**/*.py") if "crc32" in p.read_text()]
    modules = {path.name: literals(path) for path in paths}
    assert [name for name, texts in modules.items() if "source_crc32" in texts] == ["format.py"]
    assert [name for name, texts in modules.items() if "crc32" in texts] == ["layout.py"]


def test_a_shard_has_the_declared_layout_and_the_page_documents_it(tmp_path: Path) -> None:
    build(tmp_path / "out", 3)
    page = (PROJECT / "docs/format.md").read_text()
    page = page[page.index("## A shard") : page.index("## index.json")]
    documented = re.findall(r"^\| `(\w+)` \| (\(rows.*?) \| (.*) \|$", page, re.MULTILINE)
    attributes = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \| [^(]", page, re.M)))
    kinds: dict[tuple[object, ...], str] = {
        ("<f4", ...): "(rows, ...) float32 or float16, little-endian",
        ("<f4",): "(rows,) float32", ("|u1",): "(rows,) uint8", ("<u4",): "(rows,) uint32",
        (TEXT,): "(rows,) UTF-8",
    }  # fmt: skip
    assert documented == [
        (c.name, kinds[(c.dtype, *c.axes[1:])], c.meaning) for c in layout.COLUMNS
    ]
    required = [column for column in layout.COLUMNS if not column.optional]
    with h5py.File(next((tmp_path / "out").glob("*.h5"))) as file:
        names = [column.name for column in required]
        assert created(file) == [*names, *header().axes.split(", ")], "the scales come last"
        for column in required:
            assert columns.own_dataset(file, column).dtype == file[column.name].dtype
        assert {*file.attrs} == {*header().attributes(), SHARD, SHARDS, ROWS}
        assert {*file.attrs, "trained_on"} == {*attributes} - {c.name for c in layout.COLUMNS}
        assert {*REQUIRED_TEXTS} <= {*file.attrs}


def created(file: h5py.File) -> list[str]:
    """Return the datasets of a file in the order of their object headers."""
    found: dict[int, str] = {}
    file.visititems(
        lambda name, item: (
            found.__setitem__(h5py.h5o.get_info(item.id).addr, name)
            if isinstance(item, h5py.Dataset)
            else None
        )
    )
    return [found[address] for address in sorted(found)]


@pytest.mark.parametrize("store", STORES)
def test_columns_of_embedding_files_have_distinct_names(store: embedding_file.Store) -> None:
    names = [column.name for column in embedding_file.columns_of(store)]
    assert len({*names}) == len(names)
    assert all(column.meaning for column in (*layout.COLUMNS, *localized.COLUMNS))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("x", "<f4", ("rows",), ""), r"int64 of shape \(2, 3\), expected floats"),
        (Column("x", "<i4", ("rows", 4), ""), r"expected whole numbers of shape \(2, 4\)"),
        (Column("x", "<i4", ("rows", "dim"), "", exact=True), "expected int32 of shape"),
        (Column("x", TEXT, ("rows",), ""), "expected texts"),
        (Column("t", "<f4", ("rows",), ""), "is object of shape"),
        (Column("g", TEXT, ("rows",), ""), "is a group"),
        (Column("g/x/y", TEXT, ("rows",), ""), "'g/x/y' is missing; the file has e, g, t, x"),
        (Column("e", "<f4", ("rows",), ""), "is stored in other files"),
        (Column("e/x", "<f4", ("rows",), ""), "is stored in other files"),
    ],
)
def test_other_datasets_are_refused(tmp_path: Path, column: Column, message: str) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.ones((2, 3), np.int64)
        file["g/x"] = file["x"]
        file["t"] = ["a", "b"]
        file["e"] = h5py.ExternalLink("other.h5", "x")
        with pytest.raises(ValueError, match=message):
            columns.own_dataset(file, column)
        sizes: dict[str, int] = {}
        any_axes = Column("x", "<i4", ("rows", ...), "")
        assert columns.own_dataset(file, any_axes, sizes).shape == (2, 3)
        assert sizes == {"rows": 2}
        with pytest.raises(ValueError, match=r"expected texts of shape \(3,\)"):
            columns.own_dataset(file, Column("t", TEXT, ("rows",), ""), {"rows": 3})
