"""Conversion to the present version: the same rows, shards and content."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.store.builder.arrays import write_features
from pipeline.store.convert.new_version import convert_features
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import DamagedShard, OtherShard, ShardError
from pipeline.store.shards.index import FeatureIndex, read_index
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.side_by_side import write_view
from pipeline.store.shards.verify import verify
from tests.project import Recorder
from tests.store.shards.factories import build, contents

ROWS = 23


def old_set(folder: Path, grown: bool = False, compress: bool = False) -> FeatureIndex:
    """Build a set of version 1, perhaps in two steps, of which each ends in a smaller shard."""
    index = build(folder, 13 if grown else ROWS, format_version=1, compress=compress, failed=(3,))
    return build(folder, [*FeatureSet(folder).ids, "x-5.jpg"], add=True) if grown else index


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("grown", [False, True])
def test_rows_shards_and_content_are_the_same(tmp_path: Path, grown: bool, compress: bool) -> None:
    old = old_set(tmp_path / "old", grown, compress)
    before = contents(tmp_path / "old")
    new = convert_features(tmp_path / "old", tmp_path / "new")
    assert new == read_index(tmp_path / "new")
    assert (new.header.format_version, verify(tmp_path / "new").faults) == (2, [])
    assert (new.content_sha256, new.plan()) == (old.content_sha256, old.plan())
    for one, two in zip(old.shards, new.shards, strict=True):
        assert (one.file, one.rows, one.content_sha256) == (two.file, two.rows, two.content_sha256)
        shards = [ShardFile(tmp_path / name / one.file) for name in ("old", "new")]
        assert shards[0].source_crc32.tolist() == shards[1].source_crc32.tolist()
        assert {shard.compressed for shard in shards} == {compress}
    assert contents(tmp_path / "old") == before
    again = contents(tmp_path / "new")
    convert_features(tmp_path / "old", tmp_path / "new")
    assert contents(tmp_path / "new") == again


def test_a_killed_conversion_resumes(tmp_path: Path) -> None:
    old_set(tmp_path / "old")
    convert_features(tmp_path / "old", tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        convert_features(tmp_path / "old", tmp_path / "new", monitor=Recorder(interrupt_at=20))
    assert not (tmp_path / "new").exists()
    monitor = Recorder()
    convert_features(tmp_path / "old", tmp_path / "new", monitor=monitor)
    assert [step[2] for step in monitor.steps] == [20, ROWS]
    assert contents(tmp_path / "new") == contents(tmp_path / "whole")


def test_what_cannot_or_need_not_be_converted(tmp_path: Path) -> None:
    monitor = Recorder()
    build(tmp_path / "new", ROWS)
    assert convert_features(tmp_path / "new", tmp_path / "out", monitor=monitor) is None
    assert not (tmp_path / "out").exists()
    assert monitor.lines[-1].endswith("new has version 2 of the format: nothing to do")
    old_set(tmp_path / "old")
    old_set(tmp_path / "also-old")
    with pytest.raises(OtherShard, match="also-old has version 1 of the format, not 2"):
        convert_features(tmp_path / "old", tmp_path / "also-old")
    for name in ("x", "y"):
        write_features(tmp_path / name, ["a"], np.ones((1, 2)), recipe={"name": name})
    write_view(tmp_path / "view", [FeatureSet(tmp_path / name) for name in ("x", "y")], "none")
    with pytest.raises(ShardError, match="pipeline shards merge"):
        convert_features(tmp_path / "view", tmp_path / "out")
    path = tmp_path / "old" / "shard-00001-of-00003.h5"
    data = bytearray(path.read_bytes())
    at = data.index(FeatureSet(tmp_path / "old").read_rows(np.array([12])).tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedShard, match="CRC-32"):
        convert_features(tmp_path / "old", tmp_path / "out")
    assert not (tmp_path / "out").exists()
