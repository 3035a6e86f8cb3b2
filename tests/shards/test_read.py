"""Reading features by id, and what is refused."""

import json
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.shards.build import ShardBuild
from pipeline.shards.file import ShardFile
from pipeline.shards.format import DamagedShard, OtherShard, ShardError
from pipeline.shards.index import read_index
from pipeline.shards.plan import ShardPlan, default_rows_per_shard
from pipeline.shards.read import FailedRows, FeatureSet, MissingRows
from tests.shards.sample import ROWS_PER_SHARD, block, build, feature, header, ids

ROWS = 23


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(tmp_path / "out", ROWS)
    return tmp_path / "out"


def test_asked_order_repeats_and_failed_rows(folder: Path) -> None:
    features = FeatureSet(folder)
    rows = [22, 0, 11, 11, 9, 10]
    asked = [ids(ROWS)[row] for row in rows]
    np.testing.assert_array_equal(features.read(asked), np.stack([feature(r) for r in rows]))
    assert features.read([]).shape == (0, 2, 3)
    with pytest.raises(FailedRows, match="not an image"):
        features.read(ids(ROWS))
    everything = features.read(ids(ROWS), allow_failed=True)
    assert np.flatnonzero(np.isnan(everything).all(axis=(1, 2))).tolist() == [3, 17]
    assert [f[0] for f in features.failures()] == [ids(ROWS)[3], ids(ROWS)[17]]


def test_missing_ids_are_named(folder: Path) -> None:
    with pytest.raises(MissingRows, match=r"7 of 9 ids, first \['x0', .*'x4'\]"):
        FeatureSet(folder).read([*ids(ROWS)[:2], *(f"x{n}" for n in range(7))])


def test_a_moved_folder_reads_and_an_open_one_crosses_processes(folder: Path) -> None:
    moved = folder.rename(folder.with_name("elsewhere"))
    features = pickle.loads(pickle.dumps(FeatureSet(moved)))
    np.testing.assert_array_equal(features.read(ids(ROWS)[5:6])[0], feature(5))


def test_plain_h5py_reads_a_shard(folder: Path) -> None:
    with h5py.File(folder / "shard-00001-of-00003.h5") as file:
        assert file["ids"].asstr()[2] == ids(ROWS)[12]
        np.testing.assert_array_equal(file["features"][2], feature(12))
        assert file["features"].id.get_offset() is not None
        assert file["status"][7] == 1
        assert (file.attrs["shard"], file.attrs["shards"], file.attrs["rows"]) == (1, 3, 10)
        assert json.loads(file.attrs["recipe"]) == {"name": "made", "scale": 1}
        assert not any("time" in name or "date" in name for name in file.attrs)


def test_compression_changes_the_file_and_not_the_content(folder: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    with ShardBuild(small, header(), ids(ROWS), ROWS_PER_SHARD, compress=True) as making:
        for span in making.pending():
            making.append(span.start, block(span.start, span.stop, failed=(3, 17)))
        compressed = making.publish()
    plain = read_index(folder)
    pairs = list(zip(plain.shards, compressed.shards, strict=True))
    assert all(a.content_sha256 == b.content_sha256 for a, b in pairs)
    assert all(a.sha256 != b.sha256 for a, b in pairs)
    with h5py.File(small / compressed.shards[0].file) as file:
        assert file["features"].compression == "gzip"
        assert file["features"].fletcher32
    asked = ids(ROWS)[4:15]
    np.testing.assert_array_equal(FeatureSet(small).read(asked), FeatureSet(folder).read(asked))


def test_every_flipped_byte_of_the_features_is_found(folder: Path) -> None:
    path = folder / "shard-00000-of-00003.h5"
    sound = path.read_bytes()
    start = sound.index(feature(0).tobytes())
    for offset in range(0, 24 * 3, 5):
        data = bytearray(sound)
        data[start + offset] ^= 0x10
        path.write_bytes(data)
        with pytest.raises(DamagedShard, match="CRC-32"):
            FeatureSet(folder).read(ids(ROWS)[:3])


@pytest.mark.parametrize("size", [0, 100, 2000])
def test_a_truncated_shard_is_damaged(folder: Path, size: int) -> None:
    path = folder / "shard-00002-of-00003.h5"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedShard, match="shard-00002"):
        FeatureSet(folder)


def test_swapped_and_missing_shards_are_refused(folder: Path, tmp_path: Path) -> None:
    build(tmp_path / "other", ROWS, recipe={"name": "other"})
    name = "shard-00001-of-00003.h5"
    (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(OtherShard, match="another feature set"):
        FeatureSet(folder)
    (folder / name).unlink()
    with pytest.raises(ShardError, match="missing"):
        FeatureSet(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [("recipe_hash", "0" * 16), ("format_version", 2), ("shards", [{"file": "../x.h5"}])],
)
def test_an_altered_index_is_refused(folder: Path, key: str, value: object) -> None:
    path = folder / "index.json"
    facts = json.loads(path.read_text())
    if key == "shards":
        facts["shards"][0]["file"] = "../shard.h5"
    else:
        facts[key] = value
    path.write_text(json.dumps(facts))
    with pytest.raises(ShardError, match=r"index\.json"):
        FeatureSet(folder)


def test_an_hdf5_file_of_another_kind_is_damaged(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["features"] = np.zeros((2, 3))
    with pytest.raises(DamagedShard, match=r"x\.h5"):
        ShardFile(tmp_path / "x.h5")


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (10, 3), (9, 3), (5, 100)])
def test_the_plan_covers_every_row_once(rows: int, size: int) -> None:
    plan = ShardPlan(rows, size)
    covered = [
        row
        for shard in range(plan.shards)
        for batch in plan.span(shard).batches(2)
        for row in range(batch.start, batch.stop)
    ]
    assert covered == list(range(rows))
    assert all(plan.shard_of(row) == row // size for row in covered)


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(16_384, 65_536), (200_704, 4096), (401_408, 2048), (200, 65_536)]
)
def test_default_shards_are_about_half_to_one_gibibyte(row_bytes: int, rows: int) -> None:
    assert default_rows_per_shard(row_bytes) == rows
