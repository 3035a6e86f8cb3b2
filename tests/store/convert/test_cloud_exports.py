"""References for fsspec, Zarr groups and Lance tables have the values of the set, to the bit."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.store.builder.arrays import write_features
from pipeline.store.convert.export import export
from pipeline.store.errors import MissingPackage, PipelineError
from pipeline.store.files import OutputError
from pipeline.store.shards.feature_set import FailedRows, FeatureSet
from pipeline.store.shards.format import ShardError
from pipeline.store.shards.side_by_side import write_view
from pipeline.store.share.push import push
from tests.project import PROJECT
from tests.store.shards.factories import build, contents

zarr = pytest.importorskip("zarr")

ROWS = 23


def of_axes(folder: Path, axes: str) -> None:
    build(folder, 5, axes=axes)


def of_long_ids(folder: Path) -> None:
    """Write shards whose ids have different lengths, the last with a reason of its own."""
    ids = [f"{'x' * 5 * row}-{row}.jpg" for row in range(ROWS)]
    build(folder, ids, failed=(21,), dtype="float16")


def of_one_shard(folder: Path) -> None:
    """Write rows of 512 bytes: chunks of 4 MiB, of which the last does not end with the rows."""
    ids = [str(row) for row in range(8200)]
    write_features(folder, ids, np.random.rand(8200, 128).astype("f4"), recipe={"name": "x"})


def grown(folder: Path) -> None:
    build(folder, 13)
    build(folder, [*FeatureSet(folder).ids, *(f"x-{row}.jpg" for row in range(30, 52))], add=True)


SETS: dict[str, Callable[[Path], object]] = {
    "several shards": lambda folder: build(folder, ROWS),
    "no row failed": lambda folder: build(folder, 20, failed=()),
    "version 1": lambda folder: build(folder, ROWS, format_version=1),
    "grown": grown,
    "ids of different lengths": of_long_ids,
    "one shard": of_one_shard,
    "axes without scales": lambda folder: of_axes(folder, "ids, y, y"),
    "more axes": lambda folder: of_axes(folder, "image, y, x"),
}


def opened(file: Path) -> Any:
    options = {"fo": str(file), "simple_templates": False, "asynchronous": True}
    return zarr.open_group("reference://", mode="r", zarr_format=2, storage_options=options)


def require_same(group: Any, features: FeatureSet) -> None:
    """Assert that the arrays have the values and types of the set."""
    assert group["features"][:].tobytes() == features[:].tobytes()
    assert group["features"].dtype == features.dtype
    columns: dict[str, Any] = {
        "status": features.status,
        "crc32": features.crc32,
        **features.sources,
    }
    for name, values in columns.items():
        assert (group[name][:].tobytes(), group[name].dtype) == (values.tobytes(), values.dtype)
    for name, texts in (("ids", features.ids), ("error", features.errors)):
        found = group[name][:].tolist()
        assert [t.decode() if isinstance(t, bytes) else t for t in found] == list(texts)
    assert group.attrs["recipe_hash"] == features.recipe_hash


@pytest.mark.parametrize("name", SETS)
def test_references_have_every_value_of_the_shards(tmp_path: Path, name: str) -> None:
    SETS[name](tmp_path / "set")
    features = FeatureSet(tmp_path / "set")
    assert export(features, tmp_path / "x.json", allow_failed=True) == len(features)
    first = (tmp_path / "x.json").read_bytes()
    group = opened(tmp_path / "x.json")
    require_same(group, features)
    dims = {name: tuple(array.attrs["_ARRAY_DIMENSIONS"]) for name, array in group.arrays()}
    names = {"axes without scales": ("axis_0", "axis_1", "axis_2")}.get(name)
    expected = names or tuple(part.strip() for part in features.index.header.axes.split(","))
    assert dims.pop("features") == expected
    assert {*dims.values()} == {expected[:1]}
    shutil.move(tmp_path / "set", tmp_path / "moved")
    there = f"file://{tmp_path}/moved/"
    export(tmp_path / "moved", tmp_path / "x.json", allow_failed=True, url=there)
    require_same(opened(tmp_path / "x.json"), features := FeatureSet(tmp_path / "moved"))
    assert json.loads(first)["templates"] == {"u": str(tmp_path / "set")}
    assert json.loads(first)["refs"] == json.loads((tmp_path / "x.json").read_text())["refs"]


def test_references_to_a_set_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_CACHE", str(tmp_path / "cache"))
    build(tmp_path / "set", ROWS)
    bucket = f"memory://{tmp_path.name}/set"
    push(tmp_path / "set", bucket)
    export(bucket, tmp_path / "x.json", allow_failed=True)
    assert json.loads((tmp_path / "x.json").read_text())["templates"] == {"u": bucket}
    require_same(opened(tmp_path / "x.json"), FeatureSet(tmp_path / "set"))


def test_references_are_as_small_for_many_rows(tmp_path: Path) -> None:
    sizes = []
    for number in (4, 400):
        ids = [f"{row:012}" for row in range(10 * number)]
        array = np.zeros((len(ids), 3), np.float32)
        folder = tmp_path / str(number)
        write_features(folder, ids, array, recipe={"name": "x"}, rows_per_shard=number)
        export(folder, tmp_path / "x.json")
        sizes.append((tmp_path / "x.json").stat().st_size)
    assert sizes[0] < sizes[1] < min(sizes[0] + 100, 6000)


def test_what_has_no_references_is_refused_with_the_remedy(tmp_path: Path) -> None:
    build(tmp_path / "set", ROWS, compress=True)
    with pytest.raises(ShardError, match=r"is compressed.*pipeline shards merge"):
        export(tmp_path / "set", tmp_path / "x.json", allow_failed=True)
    with pytest.raises(FailedRows):
        export(tmp_path / "set", tmp_path / "x.json")
    with pytest.raises(PipelineError, match=r"refers to all rows.*ids="):
        export(tmp_path / "set", tmp_path / "x.json", ids=[])
    with pytest.raises(PipelineError, match=r"url=.* requires `to=kerchunk`"):
        export(tmp_path / "set", tmp_path / "x.npy", url="s3://x")
    for name in ("a", "b"):
        write_features(tmp_path / name, ["1"], np.ones((1, 2)), recipe={"name": name})
    write_view(tmp_path / "view", [FeatureSet(tmp_path / name) for name in ("a", "b")], "none")
    with pytest.raises(ShardError, match="pipeline shards merge"):
        export(tmp_path / "view", tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("name", ["grown", "axes without scales", "one shard"])
def test_a_zarr_group_has_every_value_of_the_set(tmp_path: Path, name: str) -> None:
    SETS[name](tmp_path / "set")
    features = FeatureSet(tmp_path / "set")
    for out in ("one.zarr", "two.zarr"):
        assert export(features, tmp_path / out, allow_failed=True) == len(features)
    assert contents(tmp_path / "one.zarr") == contents(tmp_path / "two.zarr")
    group = zarr.open_group(tmp_path / "one.zarr", mode="r", zarr_format=3)
    require_same(group, features)
    names = group["features"].metadata.dimension_names
    assert names == (None if name == "axes without scales" else ("row", *names[1:]))
    asked = [features.ids[row] for row in (4, 0)]
    export(features, tmp_path / "some.zarr", ids=asked, allow_failed=True)
    some = zarr.open_group(tmp_path / "some.zarr", mode="r")
    assert some["features"][:].tobytes() == features.read(asked, True).tobytes()
    assert (some["ids"][:].tolist(), some["crc32"][:].tolist()) == (
        asked,
        features.crc32[[4, 0]].tolist(),
    )


def test_a_lance_table_is_the_parquet_table(tmp_path: Path) -> None:
    """In a process of its own, since forks of one that has imported Lance raise a warning."""
    build(tmp_path / "set", ROWS)
    assert export(tmp_path / "set", tmp_path / "x.parquet", allow_failed=True) == ROWS
    program = (
        "import lance, pipeline; from pyarrow import parquet\n"
        "assert pipeline.export('set', 'x.lance', allow_failed=True) == 23\n"
        "table = lance.dataset('x.lance').to_table()\n"
        "assert table == parquet.read_table('x.parquet')\n"
        "assert table['vector'].null_count == 2\n"
        "assert table.schema.metadata[b'row_shape'] == b'[2,3]'\n"
    )
    path = os.environ | {"PYTHONPATH": str(PROJECT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=path, check=True)


def test_a_folder_is_new_and_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "set", ROWS, failed=())
    out = tmp_path / "x.zarr"
    out.mkdir()
    with pytest.raises(OutputError, match="exists; delete it"):
        export(tmp_path / "set", out)
    out.rmdir()
    monkeypatch.setattr(FeatureSet, "read_rows", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(tmp_path / "set", out)
    assert not out.exists()
    assert {path.suffix for path in (tmp_path / ".work").iterdir()} == {"", ".lock"}


@pytest.mark.parametrize(("to", "package"), [("zarr", "zarr"), ("lance", "pylance")])
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, package: str
) -> None:
    build(tmp_path / "set", 3, failed=())
    monkeypatch.setitem(sys.modules, to, None)
    with pytest.raises(MissingPackage, match=rf"needs the package {package} .*\[{to}\]"):
        export(tmp_path / "set", tmp_path / f"x.{to}")
    assert not (tmp_path / f"x.{to}").exists()
