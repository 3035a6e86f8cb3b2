"""Verifying, rebuilding the index, and the card: every fault is found where it is."""

import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.describe import describe
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import DamagedShard, OtherShard, RowBlock, ShardError
from pipeline.store.shards.index import read_index, rebuild_index
from pipeline.store.shards.verify import verify
from pipeline.store.share.cards.card import CARD_FILE, card_text, write_card
from tests.project import Recorder
from tests.store.shards.factories import ROWS_PER_SHARD, block, build, feature, header, ids

ROWS = 23
NAMES = [f"shard-0000{n}-of-00003.h5" for n in range(3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(tmp_path / "out", ROWS)
    return tmp_path / "out"


def compressed(out: Path) -> Path:
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD, compress=True) as work:
        for span in work.pending():
            work.append(span.start, block(span.start, span.stop, failed=(3, 17)))
        work.publish()
    return out


def faults(folder: Path, quick: bool = False) -> list[str]:
    return [str(fault) for fault in verify(folder, quick=quick).faults]


def flip(path: Path, offset: int, bits: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= bits
    path.write_bytes(data)


def test_sound_sets_have_no_faults_wherever_they_lie(folder: Path, tmp_path: Path) -> None:
    write_card(folder)
    copied = shutil.copytree(folder, tmp_path / "copy")
    moved = folder.rename(tmp_path / "moved")
    monitor = Recorder()
    for path in (copied, moved, compressed(tmp_path / "small"), moved / NAMES[1]):
        found = verify(path, monitor=monitor)
        assert (found.faults, found.indexed) == ([], True)
        assert found.rows == (10 if path.suffix else ROWS)
        assert monitor.steps[-1][2] == found.rows
        assert faults(path, quick=True) == []
    alone = shutil.copy(moved / NAMES[1], tmp_path)
    assert (verify(Path(alone)).faults, verify(Path(alone)).indexed) == ([], False)


@pytest.mark.parametrize("compress", [False, True])
def test_a_flipped_byte_anywhere_is_found_and_its_file_named(
    folder: Path, tmp_path: Path, compress: bool
) -> None:
    folder = compressed(tmp_path / "small") if compress else folder
    path = folder / NAMES[1]
    sound = path.read_bytes()
    with h5py.File(path) as file:
        columns = ("features", "status", "crc32", "source_crc32")
        places = [file[name].id.get_offset() for name in columns if file[name].chunks is None]
    rng = np.random.default_rng(int(compress))
    for offset in (*(p + 3 for p in places), 0, len(sound) - 1, *rng.integers(0, len(sound), 5)):
        flip(path, int(offset))
        found = verify(folder).faults
        assert path.name in {fault.file for fault in found}, offset
        assert {fault.file for fault in found} == {path.name}, offset
        path.write_bytes(sound)
    flip(path, len(sound) // 2)
    path.write_bytes(sound + b"\x00")
    assert any("SHA-256 of the file" in text for text in faults(folder)), "padding at the end"


@pytest.mark.usefixtures("tried_apart")
def test_a_file_that_hangs_hdf5_is_reported_and_not_indexed(tmp_path: Path) -> None:
    """One bit of the length that stands before a text in HDF5's heap: an endless loop in 2.0."""
    folder = tmp_path / "out"
    build(folder, ROWS, format_version=1)
    path = folder / NAMES[1]
    flip(path, path.read_bytes().index(ids(ROWS)[15].encode()) - 7, bits=2)
    for quick in (True, False):
        assert any(fault.startswith(f"{NAMES[1]}: ") for fault in faults(folder, quick))
    before = (folder / "index.json").read_bytes()
    with pytest.raises(DamagedShard):
        rebuild_index(folder)
    assert (folder / "index.json").read_bytes() == before


def test_all_faults_of_rows_are_listed_with_file_row_and_id(folder: Path) -> None:
    path = folder / NAMES[1]
    with h5py.File(path, "r+") as file:
        file["features"][2] = 1.5
        file["features"][5] = np.nan
        file["features"][7] = 0.0
        file["status"][8] = 9
    found = faults(folder)
    for row, text in (
        (2, "CRC-32"), (5, "CRC-32"), (5, "holds NaN"), (7, "CRC-32"), (7, "not NaN"),
        (8, "status 9"),
    ):  # fmt: skip
        expected = f"{NAMES[1]}, row {row}, id {ids(ROWS)[10 + row]!r}: "
        assert any(fault.startswith(expected) and text in fault for fault in found), (row, text)
    assert any("SHA-256 of the content" in fault for fault in found)
    quick = faults(folder, quick=True)
    assert any("status 9" in fault for fault in quick)
    assert not any("CRC-32" in fault for fault in quick)


def test_damaged_chunks_are_named_row_by_row(tmp_path: Path) -> None:
    folder = compressed(tmp_path / "small")
    with h5py.File(folder / NAMES[1]) as file:
        chunk = file["features"].id.get_chunk_info(0)
    flip(folder / NAMES[1], chunk.byte_offset + chunk.size // 2)
    found = faults(folder)
    assert any("row 2, " in fault and "unreadable" in fault for fault in found)


def test_stray_shards_leftovers_gaps_and_repeats(folder: Path, tmp_path: Path) -> None:
    build(tmp_path / "other", ROWS, recipe={"name": "other"})
    shutil.copy(tmp_path / "other" / NAMES[0], folder / NAMES[0])
    shutil.copy(folder / NAMES[1], folder / NAMES[2])
    shutil.copy(folder / NAMES[1], folder / "shard-00007-of-00009.h5")
    (folder / "index.json.0123.part").touch()
    for quick in (False, True):
        text = "\n".join(faults(folder, quick))
        assert "shard-00007-of-00009.h5: a shard that is not in the index" in text
        assert "index.json.0123.part: left over" in text
        assert f"{NAMES[0]}: recipe_hash is" in text
        assert f"{NAMES[2]}: shard is 1, in the index 2" in text
        assert f"{NAMES[2]}: rows: 10 in the file, 3 in the index" in text
        assert f"{NAMES[2]}, row 0, id {ids(ROWS)[10]!r}: duplicate id" in text
    (folder / NAMES[1]).unlink()
    assert f"{NAMES[1]}: listed in the index but missing" in "\n".join(faults(folder))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rows": 24}, "rows is 24, but 23 as the sum over its shards"),
        ({"failed_rows": 0}, "failed_rows is 0"),
        ({"recipe_hash": "0" * 16}, "recipe_hash"),
        ({"rows_per_shard": 9}, "expected"),
        ({"dataset": "x"}, "dataset is 'made', in the index 'x'"),
        ({"created_by": "x"}, "created_by is 'tests'"),
        ({"shards": []}, "shard"),
        ({"shards": [{"file": 3}]}, "corrupt"),
        ({"row_shape": "ab"}, "row_shape: Expected `array`"),
    ],
)
def test_an_index_that_disagrees_is_a_fault(
    folder: Path, change: dict[str, object], text: str
) -> None:
    path = folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert any(text in fault for fault in faults(folder)), faults(folder)
    path.unlink()
    assert [fault for fault in faults(folder) if not fault.startswith("index.json: missing")] == []


def test_sources_are_compared_with_files_and_captions(tmp_path: Path) -> None:
    files = {"a.png": b"first", "b.png": b"second"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    entries = tuple(ImageEntry(name, name, "train", ("one", "two")) for name in files)
    Manifest("made", tmp_path, entries, "none", "none", {}).write(tmp_path / "data")
    rows = ["a.png", "b.png", "b.png#1", "gone.png"]
    crc = np.array([zlib.crc32(d) for d in (b"first", b"second", b"two", b"x")], np.uint32)
    with ShardBuild(tmp_path / "out", header(), rows) as work:
        work.append(0, replace(block(0, 4), source_crc32=crc))
        work.publish()
    (tmp_path / "b.png").write_bytes(b"changed")
    found = verify(str(tmp_path / "out"), images_of=str(tmp_path / "data"))
    assert found.sources == 4
    texts = [str(fault) for fault in found.faults]
    assert len(texts) == 2
    assert "row 1, id 'b.png': its image or caption has changed since" in texts[0]
    assert "'gone.png': its image file or caption no longer exists" in texts[1]


@pytest.mark.parametrize("rows", [1, 10, 11, 23])
def test_a_rebuilt_index_has_the_same_bytes(tmp_path: Path, rows: int) -> None:
    folder = tmp_path / "out"
    build(folder, rows)
    before = (folder / "index.json").read_bytes()
    (folder / "index.json").unlink()
    rebuild_index(folder, ROWS_PER_SHARD)
    assert (folder / "index.json").read_bytes() == before


def test_an_index_is_not_made_of_what_is_no_set(folder: Path, tmp_path: Path) -> None:
    before = (folder / "index.json").read_bytes()
    build(tmp_path / "other", ROWS, recipe={"name": "other"})
    second = (folder / NAMES[1]).read_bytes()

    def refused(kind: type[Exception], text: str) -> None:
        with pytest.raises(kind, match=text):
            rebuild_index(folder)
        assert (folder / "index.json").read_bytes() == before
        (folder / NAMES[1]).write_bytes(second)

    shutil.copy(tmp_path / "other" / NAMES[1], folder)
    refused(OtherShard, "recipe")
    (folder / NAMES[1]).unlink()
    refused(ShardError, "copy all")
    shutil.copy(folder / NAMES[0], folder / NAMES[1])
    refused(ShardError, "is recorded as shard 0")
    with h5py.File(folder / NAMES[1], "r+") as file:
        file["ids"][4] = ids(ROWS)[2]
    refused(ShardError, "duplicate id")
    flip(folder / NAMES[1], second.index(feature(12).tobytes()))
    refused(DamagedShard, "CRC-32")
    with pytest.raises(ShardError, match="no shard"):
        rebuild_index(tmp_path)


def test_texts_that_are_not_utf8_are_no_attributes(tmp_path: Path) -> None:
    build(tmp_path, 3, dataset="a dataset")
    path = next(tmp_path.glob("*.h5"))
    path.write_bytes(path.read_bytes().replace(b"a dataset", b"a dat\xffset"))
    with pytest.raises(ShardError, match=r"its attributes are corrupt .*surrogates not allowed"):
        rebuild_index(tmp_path)


def test_the_description_says_what_and_how_to_read(folder: Path) -> None:
    for path in (folder, folder / NAMES[1]):
        lines = describe(path)
        text = "\n".join(lines)
        assert header().recipe_hash in text
        assert "scale: 1" in text
        assert "unreadable" in text
        assert ids(ROWS)[17] in text
        names: dict[str, object] = {}
        exec("\n".join(line.strip() for line in lines[-3:]), names)
        assert len(names["ids"]) == 10  # type: ignore[arg-type]
        names["file"].close()  # type: ignore[attr-defined]


def test_the_card_is_the_same_each_time_and_escapes_data(folder: Path) -> None:
    evil = "<script>|a`b`\n# x [l](http://e) *b* _u_ ~~s~~ \x1b[2J\u202e"
    write_card(folder, licence=evil)
    first = (folder / CARD_FILE).read_bytes()
    write_card(folder, licence=evil)
    assert (folder / CARD_FILE).read_bytes() == first
    line = next(row for row in first.decode().splitlines() if "licence" in row)
    value = line.split(" | ")[1].removesuffix(" |")
    assert not set("<>|`[]*_~\x1b\u202e\n") & set(value)
    index = read_index(folder)
    for entry in index.shards:
        assert f"{entry.sha256}  {entry.file}" in first.decode()
    entry = replace(index.shards[0], file="x\nrm -rf y.h5")
    with pytest.raises(ShardError, match="not the name of a shard"):
        card_text(replace(index, shards=(entry,)))
    entry = replace(index.shards[0], sha256="END\n")
    with pytest.raises(ShardError, match="SHA-256"):
        card_text(replace(index, shards=(entry,)))
    failures = FeatureSet(folder).failures()
    assert "2 more" in card_text(index)
    assert "2 more" not in card_text(index, failures)


def test_growing_sets_verify_and_rebuild(folder: Path) -> None:
    more = [*ids(ROWS), "later-1", "later-2"]
    with ShardBuild(folder, header(), more, add=True) as work:
        for span in work.pending():
            work.append(span.start, RowBlock(*_rows(len(span))))
        work.publish()
    assert faults(folder) == []
    before = (folder / "index.json").read_bytes()
    rebuild_index(folder)
    assert (folder / "index.json").read_bytes() == before


def _rows(count: int) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    rows = block(0, count)
    return rows.features, rows.status, rows.errors


def test_a_plan_without_end_does_not_hang(folder: Path) -> None:
    path = folder / "index.json"
    metadata = json.loads(path.read_text())
    metadata["shards"] = metadata["shards"][:1]
    metadata["shards"][0] |= {"file": "shard-00000-of-00001.h5", "rows": 10**12, "failed_rows": 0}
    path.write_text(json.dumps(metadata | {"rows": 10**12, "failed_rows": 0, "rows_per_shard": 1}))
    assert any("expected" in fault for fault in faults(folder, quick=True))
