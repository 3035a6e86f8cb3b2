"""The layout is data of one module: no other one repeats it, and docs/format.md agrees."""

import ast
import re
from pathlib import Path

import h5py

from pipeline.store.shards.layout import (
    COLUMNS,
    CRC32,
    FEATURES,
    REQUIRED_TEXTS,
    ROWS,
    SHARD,
    SHARDS,
    SOURCE_CRC32,
)
from tests.project import PROJECT
from tests.store.shards.factories import build, header

DATASETS = {FEATURES, *COLUMNS}
# The same words in other formats: columns of a TSV, arrays of other programs, tensors, JSON keys.
OTHER_FORMATS = {
    "convert/export.py": {"features", "ids"},
    "convert/importers/bottom_up.py": {"features"},
    "convert/layouts.py": {"features"},
    "remote/contents.py": {"features"},
    "resume/job.py": {"ids"},
}


def texts(path: Path) -> set[str]:
    """Return the texts that a module has as literals."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_the_names_of_datasets_are_literals_of_the_layout_only() -> None:
    folder = PROJECT / "pipeline/store/shards"
    found = {
        name: texts(path) & DATASETS - OTHER_FORMATS.get(name, set())
        for path in folder.rglob("*.py")
        if (name := str(path.relative_to(folder))) != "layout.py" and "h5py" in path.read_text()
    }
    assert {name: words for name, words in found.items() if words} == {}
    others = {*PROJECT.glob("pipeline/**/*.py")} - {folder / "layout.py"}
    assert [str(path) for path in others if texts(path) & {CRC32, SOURCE_CRC32}] == []


def test_a_shard_has_this_layout_and_the_documented_one(tmp_path: Path) -> None:
    build(tmp_path / "out", 3)
    page = (PROJECT / "docs/format.md").read_text()
    page = page[page.index("## A shard") : page.index("## index.json")]
    documented = dict(re.findall(r"^\| `(\w+)` \| (\(rows.*?) \|", page, re.MULTILINE))
    attributes = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \| [^(]", page, re.M)))
    with h5py.File(next((tmp_path / "out").glob("*.h5"))) as file:
        assert [*file] == sorted(DATASETS)
        assert {*documented} == DATASETS
        for name, dtype in COLUMNS.items():
            assert file[name].dtype == dtype
            kind = "UTF-8" if h5py.check_string_dtype(dtype) else dtype.name
            assert documented[name] == f"(rows,) {kind}"
        assert {*file.attrs} == {*header().attributes(), SHARD, SHARDS, ROWS}
        assert {*file.attrs, "trained_on"} == {*attributes} - DATASETS
        assert {*REQUIRED_TEXTS} <= {*file.attrs}
