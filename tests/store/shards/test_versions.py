"""Both versions of the format: files of the code before version 2, and new ones."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.store import columns
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.convert.export import export
from pipeline.store.convert.merge import merge
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import FeatureHeader, OtherShard, RowBlock, ShardError
from pipeline.store.shards.index import FeatureIndex, read_index, rebuild_index
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.side_by_side import write_view
from pipeline.store.shards.verify import verify
from pipeline.store.share.pull import pull
from pipeline.store.share.push import push
from tests.project import PROJECT
from tests.store.shards.factories import build, contents, header

OLD = Path(__file__).parent / "version_1"
IDS = ["a.jpg", "é/b.jpg", "c.jpg", "d#0", "e.jpg"]
FAILED = 2
WORK = "killed-5f6140aa437578bf"
MADE_WITH = "2.0.0"  # HDF5, whose version may change the bytes


def old_header(**changes: object) -> FeatureHeader:
    """Return the header of the sets of version 1, as a run of this version requests them."""
    of_old: dict[str, object] = {
        "recipe": {"name": "fixture", "size": 3},
        "weights": "seeded",
        "weights_sha256": "1" * 64,
        "axes": "row, channel",
        "dataset": "mine",
        "row_shape": (3,),
        "created_by": "caption-feature-pipeline 0.1.0, h5py 3",
    }
    return header(**{**of_old, **changes})


def rows(start: int, stop: int, failed: Sequence[int] = (FAILED,)) -> RowBlock:
    """Return rows of the sets of version 1."""
    numbers = np.arange(start, stop)
    status = np.isin(numbers, failed).astype(np.uint8)
    return RowBlock(
        (numbers[:, None] + np.arange(3) / 8).astype(np.float32),
        status,
        tuple("not an image: é" if code else "" for code in status),
        (numbers * 7).astype(np.uint32),
    )


def written(
    out: Path, ids: Sequence[str] = IDS, failed: Sequence[int] = (FAILED,), **given: Any
) -> FeatureIndex:
    """Build a set, and return its index; the keywords are those of headers and `ShardBuild`."""
    options = {name: given.pop(name) for name in ("add", "update", "compress") if name in given}
    with ShardBuild(out, old_header(**given), ids, 3, **options) as work:
        for _, status, _ in list(work.existing()):
            work.redo(np.flatnonzero(status))
        for span in work.pending():
            work.append(span.start, rows(span.start, span.stop, failed))
        return work.publish()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "finished"
    shutil.copytree(OLD, folder, ignore=shutil.ignore_patterns("killed"))
    return folder


def versions(folder: Path) -> set[int]:
    """Return the versions that the files of a set state, after all of them are verified."""
    assert verify(folder).faults == []
    found = {ShardFile(path).attributes["format_version"] for path in folder.glob("*.h5")}
    return found | {json.loads((folder / "index.json").read_text())["format_version"]}


def test_old_sets_are_read_verified_indexed_and_written_to_the_byte(old: Path) -> None:
    features = FeatureSet(old)
    np.testing.assert_array_equal(features.read(IDS[:2]), rows(0, 2).features)
    assert (features.ids, features.failures()) == (
        IDS,
        [("c.jpg", "unreadable", "not an image: é")],
    )
    assert features.source_crc32.tolist() == [0, 7, 14, 21, 28]
    assert versions(old) == {1}
    before = contents(old)
    rebuild_index(old)
    assert contents(old) == before
    written(old.with_name("again"), format_version=1)
    if h5py.version.hdf5_version == MADE_WITH:
        assert contents(old.with_name("again")) == before


def test_a_set_has_one_version_whatever_is_done_to_it(old: Path) -> None:
    """As if built from scratch in its version: redone rows, an addition, and other rows."""
    before = contents(old)
    written(old)
    assert versions(old) == {1}
    assert {name: before[name] for name in before if "00001" in name}.items() <= contents(
        old
    ).items()
    written(old.with_name("scratch"), failed=(), format_version=1)
    written(old, failed=())
    assert contents(old) == contents(old.with_name("scratch"))
    written(old, [*IDS, "f.jpg"], failed=(), add=True)
    assert (versions(old), len(FeatureSet(old))) == ({1}, 6)
    written(old, IDS[1:], failed=(), update=True)
    assert (versions(old), FeatureSet(old).ids) == ({1}, IDS[1:])
    (old / "index.json").unlink()
    written(old, IDS[1:], failed=())
    assert versions(old) == {1}
    written(old, recipe={"name": "other"}, update=True)
    assert versions(old) == {2}, "moved aside, a new set begins"
    written(old, IDS[1:], update=True)
    assert versions(old) == {1}, "moved back"


def test_a_killed_run_of_version_1_is_resumed_to_the_same_bytes(old: Path) -> None:
    out = old.with_name("killed")
    work = out.parent / ".work" / WORK
    shutil.copytree(OLD / "killed", work / "00001")
    (work / "00000").mkdir()
    shutil.copy(old / "shard-00000-of-00002.h5", work / "00000")
    with ShardBuild(out, old_header(), IDS, 3) as build:
        assert build.work == work
        assert [(span.start, span.stop) for span in build.pending()] == [(4, 5)]
        build.append(4, rows(4, 5))
        build.publish()
    assert versions(out) == {1}
    assert FeatureSet(out).index.content_sha256 == FeatureSet(old).index.content_sha256


def test_shards_of_two_versions_in_one_folder_are_refused_by_name(old: Path) -> None:
    new = old.with_name("new")
    written(new)
    name = "shard-00001-of-00002.h5"
    shutil.copy(new / name, old)
    for refused in (FeatureSet, rebuild_index, written):
        with pytest.raises(OtherShard, match=f"{name} .*has format_version 2, not 1"):
            refused(old)
    assert any("format_version is 2, in the index 1" in str(f) for f in verify(old).faults)
    (old / "index.json").unlink()
    with pytest.raises(OtherShard, match=f"{name} has format_version 2, not 1"):
        written(old)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_versions_differ_in_bytes_and_not_in_content(
    tmp_path: Path, compress: bool, dtype: str
) -> None:
    given: dict[str, Any] = {"compress": compress, "dtype": dtype}
    one = written(tmp_path / "one", format_version=1, **given)
    two = written(tmp_path / "two", **given)
    written(tmp_path / "again", **given)
    assert contents(tmp_path / "two") == contents(tmp_path / "again")
    assert [e.content_sha256 for e in one.shards] == [e.content_sha256 for e in two.shards]
    assert all(a.sha256 != b.sha256 for a, b in zip(one.shards, two.shards, strict=True))
    assert (versions(tmp_path / "one"), versions(tmp_path / "two")) == ({1}, {2})
    assert one.header.recipe_hash == two.header.recipe_hash
    for name in ("one", "two"):
        assert read(tmp_path / name / one.shards[0].file) == (IDS[:2], rows(0, 2).features.tolist())


def read(path: Path) -> tuple[list[str], list[list[float]]]:
    """Return ids and features by the example of docs/format.md."""
    page = (PROJECT / "docs/format.md").read_text()
    example = page[page.index("```python\n") + 10 :].partition("```")[0]
    assert len(example.splitlines()) <= 10
    names: dict[str, np.ndarray] = {}
    exec(example.replace("features/mine/shard-00000-of-00002.h5", str(path)), {}, names)
    return names["ids"].tolist(), names["features"].tolist()


def test_old_sets_are_shared_merged_viewed_and_exported(old: Path, tmp_path: Path) -> None:
    push(old, tmp_path / "shared")
    pull(tmp_path / "shared", tmp_path / "whole")
    assert contents(tmp_path / "whole") == contents(old)
    pull(tmp_path / "shared", tmp_path / "some", ids=["e.jpg", "a.jpg"])
    assert (versions(tmp_path / "some"), FeatureSet(tmp_path / "some").ids) == (
        {2},
        ["e.jpg", "a.jpg"],
    )
    written(tmp_path / "new", ["f.jpg", *IDS[3:]], failed=())
    written(tmp_path / "same", dataset="mine", recipe={"name": "other"})
    with pytest.raises(ShardError, match="another source_crc32"):
        merge([old, tmp_path / "new"], tmp_path / "refused")
    written(tmp_path / "more", ["f.jpg"], failed=())
    merge([old, tmp_path / "more"], tmp_path / "merged")
    assert (versions(tmp_path / "merged"), len(FeatureSet(tmp_path / "merged"))) == ({2}, 6)
    write_view(tmp_path / "view", [FeatureSet(old), FeatureSet(tmp_path / "same")], "none")
    assert FeatureSet(tmp_path / "view").read("e.jpg").tolist() == [4, 4.125, 4.25] * 2
    for copy in (False, True):
        export(old, tmp_path / "out.h5", copy=copy, allow_failed=True)
        with h5py.File(tmp_path / "out.h5") as file:
            assert file["ids"].asstr()[:].tolist() == IDS
            assert (file["features"].dims[1][0].name, file.attrs["format_version"]) == (
                "/channel",
                2,
            )


def scales(path: Path) -> list[list[str]]:
    """Return the names of the scales of each axis of the features, and of the ids."""
    with h5py.File(path) as file:
        of = [*file["features"].dims, *file["ids"].dims]
        return [[scale.name for scale in dimension.values()] for dimension in of]


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ("row, y, x", [["/row"], ["/y"], ["/x"], ["/row"]]),
        ("image,y2,größe", [["/image"], ["/y2"], ["/größe"], ["/image"]]),
        *((axes, [[], [], [], []]) for axes in ("row, x, x", "ids, y, x", "row, a/b, x")),
        *((axes, [[], [], [], []]) for axes in ("row, ., x", "row, , x", "row, y", "")),
        *((axes, [[], [], [], []]) for axes in ("row, cell y, x", "row, 2, x")),
    ],
)  # fmt: skip
def test_axes_are_scales_where_all_their_names_can_be(
    tmp_path: Path, axes: str, expected: list[list[str]]
) -> None:
    build(tmp_path / "out", 3, axes=axes)
    (path,) = (tmp_path / "out").glob("*.h5")
    assert scales(path) == expected
    assert versions(tmp_path / "out") == {2}
    with h5py.File(path) as file:
        for number, (name,) in enumerate(filter(None, expected[:3])):
            assert file[name].attrs["_Netcdf4Dimid"] == number
            assert file[name].attrs["CLASS"] == b"DIMENSION_SCALE"
            size = f"{len(file[name]):10d}"
            assert file[name].attrs["NAME"].decode() == (
                f"This is a netCDF dimension but not a netCDF variable.{size}"
            )
            assert file[name].id.get_storage_size() == 0


@pytest.mark.parametrize(
    ("longest", "width"), [(1, 16), (15, 16), (16, 16), (17, 32), (32, 32), (33, 48)]
)
def test_texts_have_the_length_of_the_longest_in_steps_of_16_bytes(
    tmp_path: Path, longest: int, width: int
) -> None:
    ids = ["é" * (longest // 2) + "x" * (longest % 2), "b"]
    for failed in ((), (1,)):
        out = tmp_path / str(failed)
        written(out, ids, failed=failed)
        with h5py.File(out / "shard-00000-of-00001.h5") as file:
            assert (file["ids"].dtype, file["ids"].chunks) == (f"S{width}", None)
            assert h5py.check_string_dtype(file["ids"].dtype) == ("utf-8", width)
            expected = ("S16", (2,), "gzip") if failed else ("S1", None, None)
            error = file["error"]
            assert (error.dtype, error.chunks, error.compression) == expected
        assert FeatureSet(out).ids == ids


def test_one_long_reason_costs_little(tmp_path: Path) -> None:
    """Every part of them is stored: datasets that claim much more than that are refused."""
    number = 20_000
    reasons = ["" for _ in range(number)]
    reasons[number // 2] = "é" * 1000
    status = np.array([bool(reason) for reason in reasons], np.uint8)
    out = tmp_path / "out"
    with ShardBuild(out, old_header(), [str(row) for row in range(number)]) as work:
        block = RowBlock(np.zeros((number, 3), np.float32), status, tuple(reasons))
        work.append(0, block)
        (entry,) = work.publish().shards
    with h5py.File(out / entry.file) as file:
        assert file["error"].dtype == "S2000"
        assert file["error"].id.get_storage_size() < number * 4
    assert FeatureSet(out).errors == reasons


def test_nul_is_refused_in_ids_and_spelled_in_reasons(tmp_path: Path) -> None:
    for row_id in ("a\0", "a\0b", "\0"):
        with pytest.raises(ShardError, match="contains NUL"):
            ShardBuild(tmp_path / "out", old_header(), [row_id])
    block = replace(rows(2, 3), errors=("cut\0",))
    for version in (1, 2):
        out = tmp_path / str(version)
        with ShardBuild(out, old_header(format_version=version), ["a"]) as work:
            work.append(0, block)
            work.publish()
        assert FeatureSet(out).errors == ["cut\\0"]
        assert read_index(out).header.format_version == version


def test_bytes_do_not_depend_on_who_still_holds_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profiler, such as Dask's, holds the frames of functions for a while."""
    build(tmp_path / "a", 6)
    held, create = [], columns.create

    def holding(*given: Any, **options: Any) -> h5py.Dataset:
        held.append(create(*given, **options))
        return held[-1]

    monkeypatch.setattr(columns, "create", holding)
    build(tmp_path / "b", 6)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert held
