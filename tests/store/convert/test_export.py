"""Exports are read back by the libraries that they are meant for, and by our own import."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from safetensors import safe_open

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.convert.export import (
    export,
    export_h5_copy,
    export_h5_view,
    export_npy,
    export_safetensors,
    export_vqa,
)
from pipeline.store.convert.importers.arrays import NpyFeatures
from pipeline.store.convert.importers.id_files import read_ids
from pipeline.store.convert.importers.import_features import import_features
from pipeline.store.convert.importers.source import import_rows
from pipeline.store.errors import WrongUsage
from pipeline.store.files import OutputError
from pipeline.store.shards import feature_set as read
from pipeline.store.shards.feature_set import FailedRows, FeatureSet, MissingRows, read_features
from pipeline.store.shards.format import OK, DamagedShard, RowBlock, ShardError
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.verify import verify
from tests.project import Recorder
from tests.store.shards.factories import build, header, ids

ROWS = 23
SOME = [ids(ROWS)[row] for row in (22, 0, 11, 5)]


@pytest.fixture
def features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureSet:
    """Rows (2, 3) of which 3 and 17 failed, read in blocks of two."""
    monkeypatch.setattr(read, "_BLOCK_BYTES", 48)
    build(tmp_path / "out", ROWS)
    return FeatureSet(tmp_path / "out")


def grids(tmp_path: Path, names: list[str], dtype: str = "float16", scale: float = 1) -> FeatureSet:
    shape = (2, 3, 4)
    about = header(axes="row, cell_y, cell_x, channel", row_shape=shape, dtype=dtype)
    values = np.random.default_rng(0).standard_normal((len(names), *shape)) * scale
    with ShardBuild(tmp_path / "grids", about, names, 2) as work:
        for span in work.pending():
            rows = values[span.start : span.stop]
            status = np.full(len(span), OK, np.uint8)
            work.append(span.start, RowBlock(rows, status, ("",) * len(span)))
        work.publish()
    return FeatureSet(tmp_path / "grids")


@pytest.mark.parametrize("repeat", [1, 5])
def test_npy_has_rows_in_the_asked_order_and_comes_back(
    features: FeatureSet, tmp_path: Path, repeat: int
) -> None:
    out = tmp_path / "new" / "test_ims.npy"
    done: list[tuple[int, int, int]] = []
    export_npy(features, out, SOME, repeat, progress=lambda *given: done.append(given))
    assert done[-1] == (4, 4, 0)
    array = np.load(out, allow_pickle=False)
    assert (array.shape, array.dtype) == ((4 * repeat, 2, 3), np.float32)
    np.testing.assert_array_equal(array, np.repeat(features.read(SOME), repeat, axis=0))
    names = read_ids(out.with_name("test_ids.txt"))
    assert names == [row_id for row_id in SOME for _ in range(repeat)]
    assert sorted(p.name for p in out.parent.iterdir()) == ["test_ids.txt", "test_ims.npy"]
    import_rows(NpyFeatures(out, names, repeat), tmp_path / "back", "made")
    np.testing.assert_array_equal(FeatureSet(tmp_path / "back").read(SOME), features.read(SOME))


def test_grids_become_cells_row_by_row(tmp_path: Path) -> None:
    features = grids(tmp_path, ["a", "b", "c"])
    export_npy(features, tmp_path / "x_ims.npy", features.ids)
    array = np.load(tmp_path / "x_ims.npy")
    stored = features.read(features.ids)
    for row, y, x in np.ndindex(3, 2, 3):
        np.testing.assert_array_equal(array[row, 3 * y + x], stored[row, y, x].astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_another_name_has_the_rows_as_they_are_stored(tmp_path: Path, dtype: str) -> None:
    features = grids(tmp_path, ["a", "é", "c"], dtype)
    export(features, tmp_path / "x.npy", ids=["c", "é"], repeat=2)
    array = np.load(tmp_path / "x.npy", allow_pickle=False)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.repeat(features.read(["c", "é"]), 2, axis=0))
    assert read_ids(tmp_path / "x_ids.txt") == ["c", "c", "é", "é"]


def test_failed_and_missing_rows_are_refused_and_leave_nothing(
    features: FeatureSet, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "x_ims.npy"
    exports = (export_npy, export_h5_copy, export_safetensors)
    for write in exports:
        with pytest.raises(FailedRows):
            write(features, out, features.ids)
        with pytest.raises(MissingRows):
            write(features, out, ["x"])
    with pytest.raises(ShardError, match="is a file of"):
        export_safetensors(features, tmp_path / "out" / "shard-00000-of-00003.h5", SOME)
    with pytest.raises(ShardError, match="twice"):
        export_h5_copy(features, out, SOME * 2)
    assert not out.parent.exists()
    export_npy(features, out, features.ids, allow_failed=True)
    nan = np.isnan(np.load(out)).all(axis=(1, 2))
    assert np.flatnonzero(nan).tolist() == [3, 17]


def test_a_view_sees_all_shards_from_anywhere_and_moves_with_them(
    features: FeatureSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_h5_view(features, tmp_path / "views" / "all.h5")
    (tmp_path / "moved").mkdir()
    for name in ("out", "views"):
        shutil.move(tmp_path / name, tmp_path / "moved" / name)
    monkeypatch.chdir("/")
    view = tmp_path / "moved" / "views" / "all.h5"
    features = FeatureSet(tmp_path / "moved" / "out")
    with h5py.File(view) as file:
        assert file["features"].is_virtual
        assert h5py.h5g.get_objinfo(file.id, b"features").mtime == 0, "no time stamp"
        assert not any(Path(v.file_name).is_absolute() for v in file["features"].virtual_sources())
        expected = features.read(features.ids, allow_failed=True)
        np.testing.assert_array_equal(file["features"][:], expected)
        assert list(file["ids"].asstr()) == features.ids
        assert file["error"].asstr()[3] == "not an image"
        np.testing.assert_array_equal(file["status"], features.status)
    with pytest.raises(DamagedShard, match="is stored in other files"):
        ShardFile(view)


def test_a_view_through_which_nothing_is_seen_is_not_written(
    features: FeatureSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5 reads a virtual row whose file is gone as zeros, without a word."""
    monkeypatch.setattr("pipeline.store.convert.export.os.path.relpath", lambda *given: "gone.h5")
    with pytest.raises(ShardError, match="is not readable through"):
        export_h5_view(features, tmp_path / "all.h5")
    assert not list(tmp_path.glob("all.h5*"))


@pytest.mark.parametrize("compress", [False, True])
def test_a_copy_is_a_shard(features: FeatureSet, tmp_path: Path, compress: bool) -> None:
    asked = [ids(ROWS)[3], *SOME]
    export_h5_copy(features, tmp_path / "some.h5", asked, True, compress)
    shard = ShardFile(tmp_path / "some.h5")
    assert (shard.ids, shard.compressed) == (asked, compress)
    assert shard.errors[0] == "not an image"
    np.testing.assert_array_equal(
        shard.read_rows(np.arange(5)), features.read(asked, allow_failed=True)
    )
    assert verify(tmp_path / "some.h5").faults == []


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_safetensors_reads_features_and_ids(tmp_path: Path, dtype: str) -> None:
    features = grids(tmp_path, ["é", "b", "c"], dtype)
    asked = ["c", "é"]
    export_safetensors(features, tmp_path / "x.safetensors", asked)
    with safe_open(tmp_path / "x.safetensors", "np") as file:
        assert json.loads(file.metadata()["ids"]) == asked
        assert file.metadata()["recipe_hash"] == features.recipe_hash
        found = file.get_tensor("features")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, features.read(asked))


def test_vqa_has_channels_first_and_whole_numbers(tmp_path: Path) -> None:
    names = ["COCO_val2014_000000000042.jpg", "7", "x-12"]
    features = grids(tmp_path, names)
    export_vqa(features, tmp_path / "x.h5", names[::-1])
    with h5py.File(tmp_path / "x.h5") as file:
        assert (file["ids"].dtype, list(file["ids"])) == (np.int32, [12, 7, 42])
        assert (file["features"].dtype, file["features"].shape) == (np.float16, (3, 4, 2, 3))
        expected = features.read(names[::-1]).transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(file["features"][:], expected)


@pytest.mark.parametrize(
    ("names", "scale", "text"),
    [
        (["a.jpg"], 1, "end in a 32-bit number"),
        (["9" * 5000], 1, "end in a 32-bit number"),
        (["a1", "b1"], 1, "same number"),
        (["1"], 1e6, "float16"),
    ],
)
def test_vqa_refuses_what_its_layout_cannot_hold(
    tmp_path: Path, names: list[str], scale: float, text: str
) -> None:
    features = grids(tmp_path, names, "float32", scale)
    with pytest.raises(ShardError, match=text):
        export_vqa(features, tmp_path / "x.h5", names)
    assert not list(tmp_path.glob("x.h5*"))


def test_lists_of_ids_name_their_faults(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("b\na\nb\n")
    assert read_ids(path) == ["b", "a", "b"]
    for text, fault in (("a\n\nb\n", "line 2 is blank"), ("", "has no ids")):
        path.write_text(text)
        with pytest.raises(ShardError, match=fault):
            read_ids(path)
    split = tmp_path / "dataset.json"
    split.write_text(json.dumps({"images": [{"cocoid": 7, "filename": "x"}, {"filename": "y"}]}))
    assert read_ids(split) == ["7", "y"]


def test_a_folder_or_what_lies_below_a_file_is_no_file_to_write(
    features: FeatureSet, tmp_path: Path
) -> None:
    (tmp_path / "dir_ims.npy").mkdir()
    (tmp_path / "file").touch()
    for out, text in (
        (tmp_path / "dir_ims.npy", "dir_ims.npy is a folder"),
        (Path(), "is a folder"),
        (Path("/"), "is a folder"),
        (tmp_path / "file" / "x_ims.npy", "file is a file"),
    ):
        for write in (export_npy, export_h5_copy, export_safetensors):
            if write is export_npy and not out.name.endswith("_ims.npy"):
                continue
            with pytest.raises(OutputError, match=text):
                write(features, out, SOME)
        with pytest.raises(OutputError, match=text):
            export_h5_view(features, out)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "csv"}, "known: npy, parquet, arrow, h5, safetensors, vqa"),
        ({"to": "h5", "repeat": 5}, "`repeat=.*` requires `to=npy`"),
        ({"to": "npy", "copy": True}, "`copy=True` requires `to=h5`"),
        ({"to": "h5", "compress": True}, "`compress=True` requires"),
    ],
)
def test_arguments_that_do_not_go_together_are_wrong_usage(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(WrongUsage, match=message):
        export(tmp_path, tmp_path / "x", **options)


def test_a_set_is_exported_and_imported_by_names_of_files(tmp_path: Path) -> None:
    build(tmp_path / "set", 7, failed=())
    asked = ids(7)[::-2]
    (tmp_path / "ids.txt").write_text("\n".join(asked) + "\n", encoding="utf-8")
    monitor = Recorder()
    for names in (asked, str(tmp_path / "ids.txt")):
        rows = export(
            str(tmp_path / "set"), str(tmp_path / "x_ims.npy"), to="npy", ids=names, repeat=5,
            monitor=monitor,
        )  # fmt: skip
        assert rows == len(asked)
    assert monitor.steps[-1][2:] == (4, 4, 0)
    import_features(
        str(tmp_path / "x_ims.npy"), str(tmp_path / "back"), layout="npy", dataset="made",
        ids=tmp_path / "x_ids.txt", every=5, monitor=monitor,
    )  # fmt: skip
    back = read_features(str(tmp_path / "back"))
    # Grids are exported with their cells in one axis.
    expected = FeatureSet(tmp_path / "set").read(asked)
    np.testing.assert_array_equal(back.read(asked), expected)
    with pytest.raises(WrongUsage, match="known: npy, mat, bottom-up, groups"):
        import_features("x", "y", layout="csv", dataset="made")
