"""What lies where a feature set shall go: refused, left alone or kept, and never overwritten."""

from pathlib import Path

import h5py
import pytest

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.files import OutputError
from pipeline.store.shards.format import ShardError
from tests.store.shards.factories import ROWS_PER_SHARD, block, build, contents, header, ids

ROWS = 23


def test_repeated_ids_are_named(tmp_path: Path) -> None:
    twice = [f"n{n}" for n in range(7)] * 2
    with pytest.raises(ShardError, match=r"7 ids .* first \['n0', .*'n4'\];"):
        ShardBuild(tmp_path / "out", header(), ["once", *twice])


def test_an_output_that_cannot_be_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="is a file"):
            build(out, ROWS)
    assert contents(tmp_path) == {"file": b"mine"}


def test_the_root_is_no_output() -> None:
    with pytest.raises(OutputError, match="root"):
        build(Path("/"), ROWS)


def test_work_on_another_disk_is_refused_before_it_begins(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second disk")
    (tmp_path / ".work").symlink_to(other)
    with pytest.raises(ShardError, match="different disks"):
        build(tmp_path / "out", ROWS)


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


def test_a_finished_set_is_left_alone(tmp_path: Path) -> None:
    first = build(tmp_path / "out", ROWS)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert build(tmp_path / "out", ROWS) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_other_unfinished_work_is_named_but_not_that_of_other_outputs(tmp_path: Path) -> None:
    for name in ("out", "out-grid"):
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / name, ROWS, stop_after=2)
    with ShardBuild(tmp_path / "out", header(weights="x"), ids(ROWS), ROWS_PER_SHARD) as work:
        assert [p.name[:-16] for p in work.other_work()] == ["out-"]


def test_unfinished_work_on_other_inputs_is_not_continued(tmp_path: Path) -> None:
    arguments = (tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD, False)
    for inputs, done in (("red", 0), ("red", 4), ("blue", 0)):
        with ShardBuild(*arguments, inputs) as work:
            assert work.rows_done == done
            if not done:
                work.append(0, block(0, 4))
