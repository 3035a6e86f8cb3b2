"""Reading features by id, and what is refused."""

import json
import multiprocessing
import os
import pickle
import threading
from multiprocessing.context import DefaultContext
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import pytest

from pipeline.store import guard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.convert.merge import merge
from pipeline.store.shards.describe import describe
from pipeline.store.shards.feature_set import FailedRows, FeatureSet, MissingRows
from pipeline.store.shards.format import DamagedShard, OtherShard, ShardError
from pipeline.store.shards.index import read_index, rebuild_index
from pipeline.store.shards.plan import ShardPlan, default_rows_per_shard
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.verify import verify
from tests.store.shards.factories import ROWS_PER_SHARD, block, build, feature, header, ids

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


def test_no_process_is_started_to_open_a_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_try", lambda *_: pytest.fail("a process was started"))
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("this process was forked"))
    (folder / "shard-00001-of-00003.h5").touch()
    assert len(FeatureSet(folder)) == ROWS
    describe(folder)
    assert verify(folder).faults == []


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
    with ShardBuild(small, header(), ids(ROWS), ROWS_PER_SHARD, compress=True) as work:
        for span in work.pending():
            work.append(span.start, block(span.start, span.stop, failed=(3, 17)))
        compressed = work.publish()
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


def test_swapped_and_missing_shards_are_refused(folder: Path, tmp_path: Path) -> None:
    build(tmp_path / "other", ROWS, recipe={"name": "other"})
    name = "shard-00001-of-00003.h5"
    (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(OtherShard, match="does not belong to the feature set"):
        FeatureSet(folder)
    (folder / name).unlink()
    with pytest.raises(ShardError, match="missing"):
        FeatureSet(folder)


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs["format"] = "pipeline-embeddings"
    with pytest.raises(DamagedShard, match="has the format 'pipeline-embeddings'"):
        describe(tmp_path / "x.h5")


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (10, 3), (9, 3), (5, 100)])
def test_the_plan_covers_every_row_once(rows: int, size: int) -> None:
    plan = ShardPlan.equal(rows, size)
    covered = [
        row
        for shard in range(plan.shards)
        for batch in plan.span(shard).batches(2)
        for row in range(batch.start, batch.stop)
    ]
    assert covered == list(range(rows))
    assert all(plan.shard_of(row) == row // size for row in covered)


@pytest.mark.parametrize(
    ("row_bytes", "rows"),
    [(16_384, 16_384), (200_704, 1024), (401_408, 512), (200, 65_536), (1 << 30, 1)],
)
def test_default_shards_have_at_most_256_mebibytes(row_bytes: int, rows: int) -> None:
    assert default_rows_per_shard(row_bytes) == rows


def _read_here(features: FeatureSet, asked: list[str], answers: object) -> None:
    answers.put(features.read(asked))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("start", "compress"), [("fork", False), ("fork", True), ("spawn", True)])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_open_set_is_read_by_workers(tmp_path: Path, compress: bool, start: str) -> None:
    build_whole(tmp_path / "out", compress)
    features = FeatureSet(tmp_path / "out")
    asked = [ids(ROWS)[row] for row in (22, 0, 11, 5)]
    expected = features.read(asked)
    context = cast(DefaultContext, multiprocessing.get_context(start))
    answers = context.Queue()
    workers = [
        # Daemons: one that does not end would keep this process from its own end.
        context.Process(target=_read_here, args=(features, asked, answers), daemon=True)
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for _ in workers:
        np.testing.assert_array_equal(answers.get(timeout=60), expected)
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0, "a worker that has answered does not end"
    np.testing.assert_array_equal(features.read(asked), expected)


def build_whole(out: Path, compress: bool) -> None:
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD, compress=compress) as work:
        for span in work.pending():
            work.append(span.start, block(span.start, span.stop))
        work.publish()


def test_threads_share_a_set(folder: Path) -> None:
    features = FeatureSet(folder)
    good = [row for row in range(ROWS) if row not in (3, 17)]
    wrong = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            rows = rng.choice(good, 7)
            got = features.read([ids(ROWS)[row] for row in rows])
            if not np.array_equal(got, np.stack([feature(row) for row in rows])):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_pickled_set_is_its_folder_and_no_features(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    features = FeatureSet(Path(folder.name))
    features.read(ids(ROWS)[:2])
    data = pickle.dumps(features)
    assert len(data) < 300
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pickle.loads(data).row(ids(ROWS)[5]), feature(5))
    shard = ShardFile(folder / "shard-00000-of-00003.h5")
    before = len(pickle.dumps(shard))
    shard.read_rows(np.array([1]))
    assert abs(len(pickle.dumps(shard)) - before) < 50


def test_one_row_and_all_rows_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.store.shards.feature_set._BLOCK_BYTES", 100)
    features = FeatureSet(folder)
    np.testing.assert_array_equal(features.row(ids(ROWS)[12]), feature(12))
    with pytest.raises(FailedRows):
        features.row(ids(ROWS)[3])
    asked = ids(ROWS)[::-1]
    with pytest.raises(FailedRows):
        features.blocks(asked)
    blocks = list(features.blocks(asked, allow_failed=True))
    assert [len(b) for b in blocks] == [4] * 5 + [3]
    joined = np.concatenate([b.features for b in blocks])
    np.testing.assert_array_equal(joined, features.read(asked, allow_failed=True))
    assert [e for b in blocks for e in b.errors if e] == ["not an image"] * 2


def test_a_column_in_another_file_is_refused(folder: Path, tmp_path: Path) -> None:
    """A shard from anywhere must not make its reader open other files of the reader's."""
    path = folder / "shard-00000-of-00003.h5"
    with h5py.File(path, "r+") as file:
        del file["ids"]
        file["ids"] = h5py.ExternalLink(str(folder / "shard-00001-of-00003.h5"), "ids")
    with pytest.raises(DamagedShard, match="is stored in other files"):
        ShardFile(path)
    with h5py.File(path, "r+") as file:
        del file["features"]
        file.create_dataset(
            "features", (10, 2, 3), "<f4", external=[(os.devnull, 0, h5py.h5f.UNLIMITED)]
        )
    with pytest.raises(DamagedShard, match="is stored in other files"):
        ShardFile(path)


@pytest.mark.parametrize(
    "change",
    [
        {"row_shape": ["x"]}, {"row_shape": []}, {"row_shape": [2, True]}, {"row_shape": [2, 4]},
        {"shards": []}, {"shards": None}, {"shards": [None]}, {"rows_per_shard": None},
        {"rows_per_shard": True}, {"dtype": 0}, {"dtype": "float64"}, {"weights": None},
        {"dataset": None}, {"axes": 1}, {"created_by": []}, {"recipe": []}, {"rows": 24},
        {"rows": 23.0}, {"weights_sha256": "x"}, {"dataset": "other"}, {"recipe_hash": "0" * 16},
        {"format_version": 1}, {"format_version": 3}, {"format_version": "2"},
    ],
    ids=str,
)  # fmt: skip
def test_an_index_of_wrong_types_or_sums_is_refused(
    folder: Path, change: dict[str, object]
) -> None:
    path = folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(
        ShardError, match=r"index\.json is corrupt or of another format|set of its index"
    ):
        FeatureSet(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": None}, {"sha256": "A" * 64}, {"content_sha256": 1}, {"file": ".."},
        {"file": "shard-00000-of-00003.h5"}, {"file": 3}, {"rows": -10}, {"rows": 10.0},
        {"rows": True}, {"failed_rows": -1}, {"failed_rows": 11}, {"first_row": 0},
        {"first_row": 20}, {"first_row": 10.0}, {"first_row": None}, {"created_by": 1}, {"x": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_line_of_the_index_of_wrong_types_or_place_is_refused(
    folder: Path, change: dict[str, object]
) -> None:
    path = folder / "index.json"
    metadata = json.loads(path.read_text())
    metadata["shards"][1] |= change
    path.write_text(json.dumps(metadata))
    with pytest.raises(ShardError, match=r"index\.json is corrupt or of another format"):
        FeatureSet(folder)


def test_what_weights_were_trained_on_goes_along_and_is_in_no_hash(tmp_path: Path) -> None:
    plain, said = tmp_path / "plain", tmp_path / "said"
    build(plain, 25)
    index = build(said, 25, trained_on=("ImageNet-1k", "COCO, captions"))
    assert index.header.recipe_hash == FeatureSet(plain).recipe_hash
    assert FeatureSet(said).index.header.trained_on == ("ImageNet-1k", "COCO, captions")
    assert "trained_on" not in json.loads((plain / "index.json").read_text())
    assert "COCO, captions" in "\n".join(describe(said))
    whole = (said / "index.json").read_bytes()
    (said / "index.json").unlink()
    rebuild_index(said, ROWS_PER_SHARD)
    assert (said / "index.json").read_bytes() == whole
    merged = merge([plain, said], tmp_path / "both", rows_per_shard=ROWS_PER_SHARD)
    assert merged.header.trained_on == index.header.trained_on


def test_every_changed_value_of_an_index_is_found(tmp_path: Path) -> None:
    """Also the name of the training data, which decides whether a row has seen the test."""
    build(tmp_path, 25, trained_on=("COCO, captions",))
    path = tmp_path / "index.json"
    whole = path.read_bytes()
    label = whole.index(b'"trained_on"')
    for place in {*range(1, len(whole), 29), *range(label, label + 120, 3)}:
        byte = whole[place : place + 1]
        if not byte.isspace():
            path.write_bytes(whole[:place] + bytes([byte[0] ^ 1]) + whole[place + 1 :])
            assert verify(tmp_path).faults, whole[place - 20 : place + 20]
    path.write_bytes(whole)
    assert verify(tmp_path).faults == []


def test_another_word_on_the_training_changes_the_index_alone(tmp_path: Path) -> None:
    build(tmp_path, 25)
    shards = {path: path.read_bytes() for path in tmp_path.glob("*.h5")}
    assert build(tmp_path, 25, trained_on=("COCO",)).header.trained_on == ("COCO",)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.h5")} == shards
    assert FeatureSet(tmp_path).index.header.trained_on == ("COCO",)
    assert verify(tmp_path).faults == []
    for wrong in ("COCO", [1], None):
        values = json.loads((tmp_path / "index.json").read_text())
        (tmp_path / "wrong").mkdir(exist_ok=True)
        (tmp_path / "wrong/index.json").write_text(json.dumps({**values, "trained_on": wrong}))
        with pytest.raises(ShardError, match="trained_on"):
            read_index(tmp_path / "wrong")
