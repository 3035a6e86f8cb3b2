"""Building feature sets: every way of being interrupted ends in the same bytes."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.canonical import OutputError
from pipeline.shards import build as build_module
from pipeline.shards.build import ShardBuild
from pipeline.shards.format import OtherShard, RowBlock, ShardError
from pipeline.shards.plan import PlanError
from pipeline.shards.read import FeatureSet
from tests.shards.sample import ROWS_PER_SHARD, block, build, contents, feature, header, ids

ROWS = 23


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """The bytes of an uninterrupted build."""
    build(tmp_path / "whole" / "out", ROWS)
    return contents(tmp_path / "whole")


@pytest.mark.parametrize("rows", [1, 9, 10, 11, 23])
def test_rows_come_back_by_id_whatever_the_number(tmp_path: Path, rows: int) -> None:
    index = build(tmp_path / "out", rows)
    assert [s.rows for s in index.shards] == [10] * (rows // 10) + [rows % 10] * (rows % 10 > 0)
    features = FeatureSet(tmp_path / "out")
    good = [row for row in reversed(range(rows)) if row not in (3, 17)]
    asked = [ids(rows)[row] for row in good]
    np.testing.assert_array_equal(features.read(asked), np.stack([feature(r) for r in good]))


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="empty"):
        ShardBuild(tmp_path / "out", header(), [])


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["pieces", "no-pieces"])
@pytest.mark.parametrize("stop_after", range(8))
def test_interrupted_then_continued_gives_the_same_bytes(
    tmp_path: Path,
    whole: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    stop_after: int,
    seconds: float,
) -> None:
    monkeypatch.setattr(build_module, "PIECE_SECONDS", seconds)
    out = tmp_path / "again" / "out"
    if stop_after < 7:
        with pytest.raises(KeyboardInterrupt):
            build(out, ROWS, stop_after=stop_after)
        assert not out.exists()
        with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as making:
            assert making.rows_done == min(stop_after * 4, 10) + max(0, stop_after - 3) * 4 - 2 * (
                stop_after == 6
            ), "no finished row is lost"
    build(out, ROWS)
    assert contents(tmp_path / "again") == whole


@pytest.mark.parametrize("function", ["os.fsync", "os.replace"])
def test_killed_before_any_write_gives_the_same_bytes(
    tmp_path: Path, whole: dict[str, bytes], function: str
) -> None:
    """SIGKILL before each fsync and each rename of the whole build, then once more."""
    call = 0
    while True:
        out = tmp_path / f"killed{call}" / "out"
        command = [sys.executable, str(Path(__file__).with_name("sample.py"))]
        run = subprocess.run(
            [*command, str(out), str(ROWS), function, str(call)], capture_output=True, text=True
        )
        if run.returncode == 0:
            break
        assert run.returncode == -signal.SIGKILL, run.stderr
        for path in (p for p in out.glob("*") if p.suffix != ".part"):
            assert path.read_bytes() == whole[f"out/{path.name}"], "final names hold final bytes"
        build(out, ROWS)
        assert contents(out.parent) == whole
        call += 1 if function == "os.replace" else 3
    assert call >= 9


def test_a_flipped_byte_is_found_and_only_its_shard_made_again(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out = tmp_path / "flipped" / "out"
    build(out, ROWS)
    damaged, sound = (out / f"shard-0000{n}-of-00003.h5" for n in (1, 2))
    before = sound.stat()
    data = bytearray(damaged.read_bytes())
    data[data.index(feature(12).tobytes())] ^= 1
    damaged.write_bytes(data)

    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as making:
        assert len(making.damaged) == 1
        assert str(damaged) in making.damaged[0]
        assert ids(ROWS)[12] in making.damaged[0]
        assert making.rows_done == ROWS - 10
    build(out, ROWS)
    assert contents(out.parent) == whole
    assert sound.stat().st_ino == before.st_ino


def test_unfinished_work_on_other_inputs_is_not_continued(tmp_path: Path) -> None:
    arguments = (tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD, False)
    for inputs, done in (("red", 0), ("red", 4), ("blue", 0)):
        with ShardBuild(*arguments, inputs) as making:
            assert making.rows_done == done
            if not done:
                making.append(0, block(0, 4))


def test_a_damaged_index_is_written_again(tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "again" / "out"
    build(out, ROWS)
    (out / "index.json").write_text("{")
    build(out, ROWS)
    assert contents(out.parent) == whole


def test_an_output_that_cannot_be_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="is a file"):
            build(out, ROWS)
    assert contents(tmp_path) == {"file": b"mine"}


def test_a_shard_that_may_not_be_read_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "out", ROWS)
    before = contents(tmp_path)

    def denied(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(h5py, "File", denied)
        with pytest.raises(ShardError, match="check its permissions"):
            build(tmp_path / "out", ROWS)
    assert contents(tmp_path) == before


def test_other_unfinished_work_is_named_but_not_that_of_other_outputs(tmp_path: Path) -> None:
    for name in ("out", "out-grid"):
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / name, ROWS, stop_after=2)
    with ShardBuild(tmp_path / "out", header(weights="x"), ids(ROWS), ROWS_PER_SHARD) as making:
        assert [p.name[:-16] for p in making.other_work()] == ["out-"]


def test_a_finished_set_is_left_alone(tmp_path: Path) -> None:
    first = build(tmp_path / "out", ROWS)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert build(tmp_path / "out", ROWS) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"recipe": {"name": "other", "scale": 1}}, "name 'made' .asked for: 'other'"),
        ({"weights_sha256": "1" * 64}, "has weights_sha256"),
        ({"rows": 22}, "23 rows"),
    ],
)
def test_an_output_of_another_set_is_refused_and_kept(
    tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    build(tmp_path / "out", ROWS)
    before = contents(tmp_path)
    rows = int(str(changes.pop("rows", ROWS)))
    with pytest.raises(OtherShard, match=found):
        build(tmp_path / "out", rows, **changes)
    assert contents(tmp_path) == before


def test_other_ids_are_refused(tmp_path: Path) -> None:
    build(tmp_path / "out", ROWS)
    with (
        pytest.raises(OtherShard, match="another --out"),
        ShardBuild(tmp_path / "out", header(), ids(ROWS)[::-1], ROWS_PER_SHARD),
    ):
        pass


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    arguments = (tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD)
    with (
        ShardBuild(*arguments),
        pytest.raises(ShardError, match="another process"),
        ShardBuild(*arguments),
    ):
        pass
    build(tmp_path / "out", ROWS)


def test_rows_out_of_turn_or_not_finite_are_refused(tmp_path: Path) -> None:
    with ShardBuild(tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD) as making:
        with pytest.raises(ShardError, match="out of turn"):
            making.append(4, block(4, 8))
        with pytest.raises(ShardError, match="out of turn"):
            making.append(0, block(0, 11))
    overflow = block(0, 4)
    overflow.features[2] = 1e6
    with (
        pytest.raises(ShardError, match=ids(ROWS)[2]),
        ShardBuild(tmp_path / "half", header(dtype="float16"), ids(ROWS), 4) as making,
    ):
        making.append(0, RowBlock(overflow.features, overflow.status, overflow.errors))
