"""Files of finished rows: damage anywhere costs at most one row, and takes none from elsewhere."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.builder.journal import Journal, append_rows
from pipeline.store.shards.format import DamagedShard, OtherShard
from pipeline.store.shards.plan import Span
from pipeline.store.shards.writer import stored_block, write_shard
from tests.store.shards.factories import (
    ROWS_PER_SHARD,
    block,
    build,
    contents,
    feature,
    header,
    ids,
)

ROWS, FAILED = 23, (3, 17)


def write_rows(folder: Path, name: str, spans: list[Span], version: str) -> Path:
    """Write finished rows of the first shard: to a journal, or a piece as base versions did."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [ids(ROWS)[span.start : span.stop] for span in spans]
    blocks = [block(span.start, span.stop, FAILED) for span in spans]
    if version == "piece":
        path = folder / f"piece-000000000-000000010-{name}.h5"
        write_shard(path, header(), [*chain(*chosen)], blocks, 0, 1)
        return path
    stored = [stored_block(header(), b, names) for b, names in zip(blocks, chosen, strict=True)]
    path = folder / f"{name}.journal"
    append_rows(path, folder.parent.name[-16:], header(), zip(chosen, stored, strict=True))
    return path


def flip(path: Path, row: int) -> None:
    """Change a byte of the features of a row."""
    data = bytearray(path.read_bytes())
    data[data.index(feature(row).tobytes())] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("version", "lost"), [("journal", Span(5, 6)), ("piece", Span(4, 8))])
def test_rows_around_a_damaged_file_with_a_gap(tmp_path: Path, version: str, lost: Span) -> None:
    """Rows 0-3 and 8-9 are in one file, 4-7 in another that is damaged, and then as expected."""
    build(tmp_path / "whole" / "out", ROWS)
    out = tmp_path / "again" / "out"
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        folder = work.work / "00000"
        write_rows(folder, "a" * 12, [Span(0, 4), Span(8, 10)], version)
        flip(write_rows(folder, "b" * 12, [Span(4, 8)], version), 5)
        write_rows(folder, "c" * 12, [Span(6, 7)], version)
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        pending = [row for s in work.pending() for row in range(s.start, min(s.stop, 10))]
        assert pending == [row for row in range(lost.start, lost.stop) if row != 6]
        assert len(work.damaged) == 1
    build(out, ROWS)
    assert contents(out.parent) == contents(tmp_path / "whole")


def test_a_changed_byte_costs_one_row_and_a_torn_end_the_last(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "out-0123456789abcdef", "a", [Span(0, 4), Span(6, 9)], "journal")
    data, rows = path.read_bytes(), [0, 1, 2, 3, 6, 7, 8]

    def found(content: bytes) -> list[int]:
        """Return the rows of a journal, each of which is as it was written."""
        path.write_bytes(content)
        journal = Journal(path, header())
        numbers = [ids(ROWS).index(row_id) for row_id in journal.ids]
        for position, row in enumerate(numbers):
            as_written = block(row, row + 1, FAILED)
            (read,) = journal.read_rows(np.array([position]))
            np.testing.assert_array_equal(read, np.where(row in FAILED, np.nan, feature(row)))
            assert journal.status[position] == as_written.status[0]
            assert journal.errors[position] == as_written.errors[0]
            assert as_written.source_crc32 is not None
            assert journal.sources["source_crc32"][position] == as_written.source_crc32[0]
        return numbers

    assert found(data) == rows
    first = data.index(b"\n") + 1
    for at in range(first, len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        assert len({*rows} - {*found(bytes(changed))}) == 1
    for stop in range(len(data)):
        kept = found(data[:stop])
        assert kept == rows[: len(kept)]
    assert found(data[:-1]) == rows[:-1]
    for at in range(first - 1):
        changed = bytearray(data)
        changed[at] ^= 128
        path.write_bytes(changed)
        with pytest.raises((DamagedShard, OtherShard)):
            Journal(path, header())


def test_rows_of_other_work_or_features_are_not_taken(tmp_path: Path) -> None:
    arguments = (tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD)
    with ShardBuild(*arguments) as work:
        path = write_rows(tmp_path / "out-0123456789abcdef" / "00000", "a", [Span(0, 4)], "journal")
        (work.work / "00000").mkdir()
        path.rename(work.work / "00000" / path.name)
    with ShardBuild(*arguments) as work:
        assert work.rows_done == 0
        assert "belongs to other work" in work.damaged[0]
    with pytest.raises(OtherShard, match="float16"):
        Journal(work.work / "00000" / path.name, header(dtype="float16"))
