"""Finished sets that change: failed rows made again, rows added, and the plans of grown sets."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pipeline.store.builder import existing, unfinished_shard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OtherShard, ShardError
from pipeline.store.shards.index import INDEX_FILE, read_index
from pipeline.store.shards.plan import ShardPlan, Span, plan_of, runs, shard_name
from pipeline.store.shards.reader import ShardFile
from tests.store.shards.factories import (
    ROWS_PER_SHARD,
    block,
    build,
    contents,
    feature,
    header,
    ids,
)

ROWS = 23


def inodes(folder: Path) -> dict[str, int]:
    """The inode of every shard."""
    return {path.name: path.stat().st_ino for path in folder.glob("*.h5")}


@pytest.mark.parametrize("compress", [False, True])
def test_rows_made_again_give_the_bytes_of_a_fresh_build(tmp_path: Path, compress: bool) -> None:
    """The set's own layout is kept, whatever is asked for; a row that fails again stays failed."""
    fresh, out = tmp_path / "fresh" / "out", tmp_path / "again" / "out"
    build(fresh, ROWS, failed=(3,), compress=compress)
    build(out, ROWS, failed=(3, 4, 7), compress=compress)
    untouched = inodes(out)
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        found = list(work.existing())
        assert [len(rows) for rows, _, _ in found] == [10, 10, 3]
        status, sources = (np.concatenate([part[n] for part in found]) for n in (1, 2))
        assert np.flatnonzero(status).tolist() == [3, 4, 7]
        changed = np.arange(1, ROWS + 1) != sources
        np.testing.assert_array_equal(changed, status != 0)
        work.redo(np.flatnonzero(status))
        assert work.pending() == [Span(3, 5), Span(7, 8)]
        assert work.rows_done == ROWS - 3
        with pytest.raises(ShardError, match="unexpected row"):
            work.append(6, block(6, 7))
        work.append(3, block(3, 5, failed=(3,)))
        work.append(7, block(7, 8))
        assert work.pending() == []
        work.publish()
    assert contents(out.parent) == contents(fresh.parent)
    kept = [name for name, inode in inodes(out).items() if inode == untouched[name]]
    assert sorted(kept) == ["shard-00001-of-00003.h5", "shard-00002-of-00003.h5"]


def test_any_rows_in_any_interruptions_give_the_bytes_of_a_fresh_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_shard, "FLUSH_SECONDS", 0.0)
    build(tmp_path / "fresh" / "out", ROWS, failed=())
    fresh = contents(tmp_path / "fresh")
    rng = np.random.default_rng(0)
    for number in range(5):
        out = tmp_path / str(number) / "out"
        rows = np.flatnonzero(rng.random(ROWS) < rng.random())
        build(out, ROWS, failed=tuple(rows.tolist()))
        most = len(rows)
        for stop_after in (int(rng.integers(4)), int(rng.integers(4)), None):
            with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
                failed = [rows_of[status != 0] for rows_of, status, _ in work.existing()]
                work.redo(np.concatenate([*failed, np.zeros(0, np.int64)]))
                assert ROWS - work.rows_done <= most, "no row made again is lost"
                batches = [b for span in work.pending() for b in span.batches(2)]
                for rows_of in batches[:stop_after]:
                    work.append(rows_of.start, block(rows_of.start, rows_of.stop))
                most = ROWS - work.rows_done
        build(out, ROWS, failed=(), redo=True)
        assert contents(out.parent) == fresh


def test_rows_that_are_not_there_cannot_be_made_again(tmp_path: Path) -> None:
    build(tmp_path / "out", ROWS)
    with ShardBuild(tmp_path / "out", header(), ids(ROWS), ROWS_PER_SHARD) as work:
        work.redo([])
        for row in (-1, ROWS):
            with pytest.raises(ShardError, match="rows 0 to 22"):
                work.redo([4, row])
        assert work.pending() == []
        assert work.published == read_index(tmp_path / "out")


def test_a_shard_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(out, ROWS)
    first, second, _ = sorted(out.glob("shard-*"))
    second.write_bytes(first.read_bytes())
    with pytest.raises(OtherShard, match="holds 23 rows, not the 23 requested; `update=True`"):
        build(out, ROWS)


def test_shards_of_several_versions_say_so_each(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(out, ROWS, failed=(12,), created_by="old")
    before = contents(tmp_path)
    build(out, ROWS, created_by="new")
    assert contents(tmp_path) == before
    index = build(out, ROWS, failed=(), redo=True, created_by="new")
    assert index.header.created_by == "old"
    assert [entry.created_by for entry in index.shards] == [None, "new", None]
    assert read_index(out) == index
    assert contents(tmp_path)["out/index.json"].count(b"created_by") == 2


def test_a_set_grows_twice_and_its_shards_stay(tmp_path: Path) -> None:
    """Later ids come last, though they are asked for in between."""
    out = tmp_path / "out"
    all_ids = ids(ROWS)
    generations = [all_ids[2:15], all_ids[1:18], all_ids]
    order = [*all_ids[2:15], all_ids[1], *all_ids[15:18], all_ids[0], *all_ids[18:]]
    seen: dict[str, int] = {}
    for asked, size in zip(generations, (10, 3, None), strict=True):
        index = build(out, asked, add=True, rows_per_shard=size)
        assert index == build(out, asked, add=True, rows_per_shard=size), "nothing more to add"
        assert index == build(out, asked), "known as finished, whoever asks"
        if len(asked) > 13:
            assert index == build(out, asked[::-1], rows_per_shard=None)
        assert inodes(out).items() >= seen.items()
        seen = inodes(out)
        features = FeatureSet(out)
        assert features.ids == order[: len(asked)]
        assert [e.first_row for e in index.shards] == np.cumsum(
            [0, *(e.rows for e in index.shards[:-1])]
        ).tolist()
        good = [row_id for row_id in asked if row_id not in (all_ids[3], all_ids[17])]
        expected = [feature(int(row_id[:-4].split("-")[1])) for row_id in good]
        np.testing.assert_array_equal(features.read(good), np.stack(expected))
    assert sorted(seen) == [
        "shard-00000-of-00002.h5",
        "shard-00001-of-00002.h5",
        "shard-00002-of-00004.h5",
        "shard-00003-of-00004.h5",
        "shard-00004-of-00006.h5",
        "shard-00005-of-00006.h5",
    ]
    before = contents(tmp_path)
    build(out, all_ids, update=True)
    assert contents(tmp_path) == before, "an update of nothing changes nothing"
    damaged = out / "shard-00003-of-00004.h5"
    for data in (before[f"out/{damaged.name}"][:1000], None):
        damaged.unlink() if data is None else damaged.write_bytes(data)
        with pytest.raises(ShardError, match="missing or corrupt"):
            build(out, [*all_ids, "more-30.jpg"], add=True)
        build(out, all_ids)
        assert contents(tmp_path) == before, "a damaged shard of a grown set is made again"


@pytest.mark.parametrize("sizes", [[(5, 2)], [(1, 9), (4, 3)], [(6, 3), (7, 9), (8, 1)]])
def test_a_grown_plan_covers_every_row_once(sizes: list[tuple[int, int]]) -> None:
    plan = None
    for rows, rows_per_shard in sizes:
        plan = ShardPlan.equal(rows, rows_per_shard, plan)
    assert plan is not None
    spans = [plan.span(shard) for shard in range(plan.shards)]
    assert [row for span in spans for row in range(span.start, span.stop)] == list(range(rows))
    for shard, span in enumerate(spans):
        assert {plan.shard_of(row) for row in range(span.start, span.stop)} == {shard}
    named = [(plan.file_name(shard), len(span)) for shard, span in enumerate(spans)]
    again = plan_of(named, rows_per_shard)
    assert [again.span(shard) for shard in range(again.shards)] == spans
    for wrong in ([], named[1:], [*named, named[-1]]):
        with pytest.raises(ShardError):
            plan_of(wrong, rows_per_shard)


@pytest.mark.parametrize("rows", [[], [3], [0, 1, 2], [0, 2, 3, 9]])
def test_runs_hold_just_the_rows(rows: list[int]) -> None:
    found = runs(np.array(rows, np.int64))
    assert [row for span in found for row in range(span.start, span.stop)] == rows
    assert all(a.stop < b.start for a, b in pairwise(found))


def test_an_altered_index_cannot_plan_without_end() -> None:
    assert plan_of([("shard-00000-of-00001.h5", 10**12)], 10**12).shards == 1
    for shards in ([("shard-00000-of-00001.h5", 10**12)], [("shard-00000-of-00002.h5", 1)] * 2):
        with pytest.raises(ShardError):
            plan_of(shards, 1)


def test_shards_of_input_files_have_any_sizes() -> None:
    sizes = (3, 1, 7, 2)
    plan = plan_of([(shard_name(number, 4), rows) for number, rows in enumerate(sizes)], 7)
    assert [len(plan.span(shard)) for shard in range(4)] == [3, 1, 7, 2]
    assert [plan.shard_of(row) for row in (0, 2, 3, 4, 10, 11, 12)] == [0, 0, 1, 2, 2, 3, 3]
    with pytest.raises(ShardError, match="found shard-00000-of-00004"):
        plan_of([(shard_name(number, 4), rows) for number, rows in enumerate(sizes)], 6)


def test_what_is_not_a_plan_is_refused_by_its_numbers() -> None:
    empty = (
        r"^cannot plan {} rows in shards of {}: .*; is the dataset, its split or the limit empty\?$"
    )
    for rows, size, older in ((0, 5, None), (5, 0, None), (3, 5, ShardPlan.equal(3, 5))):
        with pytest.raises(ShardError, match=empty.format(0 if older else rows, size)):
            ShardPlan.equal(rows, size, older)
    one = "shard-00000-of-00001.h5"
    for shards, found in (
        ([], "^found no shards; a"),
        ([("x.h5", 1)], f"^found x.h5 with 1 rows, expected {one} with 1 rows"),
        ([(one, 1), ("shard-00001-of-00001.h5", 0)], "^found 2 shards, expected 1"),
    ):
        with pytest.raises(ShardError, match=found):
            plan_of(shards, 1)


def test_each_refusal_has_what_was_found_and_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, held, all_ids = tmp_path / "out", ids(ROWS)[:13], ids(ROWS)
    build(out, held)
    holds, elsewhere = (
        f"^{out} holds 13 rows",
        f"; choose another output folder, or delete {out} if",
    )
    update = "; `update=True` keeps the rows .*, or choose another output folder$"
    added = "add them .`add=True`., or update the set .`update=True`., or choose another"
    for asked, size, add, found in (
        (all_ids, 10, None, r"; 10 of the 23 .* first \['.*'\]; choose another output folder$"),
        (all_ids, 10, False, f"{holds}; 10 of the 23 requested rows are not .*; {added} output"),
        (held[1:], 10, None, f"{holds}; 1 of them are .* the 12 .*{elsewhere}"),
        (held[1:], 10, False, f"{holds}; 1 of them are not among the 12 requested, .*{update}"),
        (held[::-1], 10, False, f"{holds} in another order than requested{update}"),
        (held, 4, False, f"{holds} in shards of 10, not 4{update}"),
    ):
        work = ShardBuild(out, header(), asked, size, False, None, add)
        with pytest.raises(OtherShard, match=found), work:
            pass
    (out / "shard-00001-of-00002.h5").rename(out / "shard-00002-of-00003.h5")
    stray = (
        "holds shard-00002-of-00003.h5, which is not one of the 2 requested shards of 10 rows and"
    )
    lost = "is left over from an unfinished run with other rows, or the index was lost: finish that"
    with pytest.raises(
        OtherShard, match=f"^{out} {stray} not .* {INDEX_FILE}. It {lost} run, rebuild"
    ):
        build(out, held)
    monkeypatch.setattr(existing, "is_view", lambda path: True)
    with pytest.raises(OtherShard, match=f"^{out} is a view of other feature sets{elsewhere}"):
        build(out, held)


def test_a_single_compressed_shard_stays_compressed(tmp_path: Path) -> None:
    build(tmp_path / "a" / "out", 5, failed=(), compress=True)
    build(tmp_path / "b" / "out", 5, failed=(2,), compress=True)
    build(tmp_path / "b" / "out", 5, failed=(), redo=True)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_only_shards_unlike_the_index_are_tried_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[list[str]] = []

    def none_crash(paths: list[Path], features: bool) -> dict[Path, str]:
        assert features
        tried.append([path.name for path in paths])
        return {}

    monkeypatch.setattr(existing, "find_crashing_files", none_crash)
    out = tmp_path / "out"
    build(out, ROWS)
    build(out, ROWS)
    names = sorted(inodes(out))
    data = (out / names[1]).read_bytes()
    (out / names[1]).write_bytes(data + b"x")
    build(out, ROWS)
    (out / INDEX_FILE).unlink()
    build(out, ROWS)
    assert tried == [[], [], names[1:2], names]


def test_a_shard_that_crashes_hdf5_is_made_again_unopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    build(out, ROWS)
    before, names = contents(tmp_path), sorted(inodes(out))
    (out / names[1]).write_bytes((out / names[1]).read_bytes() + b"x")
    opened: list[str] = []

    def all_crash(paths: list[Path], features: bool) -> dict[Path, str]:
        return dict.fromkeys(paths, "it crashes HDF5")

    def recorded(path: Path) -> ShardFile:
        opened.append(path.name)
        return ShardFile(path)

    monkeypatch.setattr(existing, "find_crashing_files", all_crash)
    monkeypatch.setattr(existing, "ShardFile", recorded)
    build(out, ROWS)
    assert opened == [names[0], names[2]]
    assert contents(tmp_path) == before
