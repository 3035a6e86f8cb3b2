"""Sets that become what a dataset is now: rows copied by id, others computed, all at once."""

import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline.store.builder import unfinished_shard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.current.replace import mark_superseded
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.index import INDEX_FILE
from tests.store.builder.test_feature_build import program
from tests.store.shards.factories import ROWS_PER_SHARD, build, contents, header, ids, updated

ROWS = 23
UPDATED = updated(ROWS)


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """The bytes of the updated set, made from nothing."""
    build(tmp_path / "whole" / "out", UPDATED)
    return contents(tmp_path / "whole")


@pytest.mark.parametrize("rows_per_shard", [ROWS_PER_SHARD, None, 4])
def test_only_new_rows_are_computed(tmp_path: Path, rows_per_shard: int | None) -> None:
    """The set's own rows per shard are kept unless others are asked for."""
    out = tmp_path / "out"
    build(out, ROWS)
    with ShardBuild(out, header(), UPDATED, rows_per_shard, update=True) as work:
        pending = [row_id for s in work.pending() for row_id in work.ids[s.start : s.stop]]
        assert pending == [f"new-{number}.jpg" for number in (40, 41, 42, 43)]
        assert work.replaced_rows == (ROWS - 6, 6)
        rows = np.concatenate([rows for rows, _, _ in work.existing()])
        assert Counter(rows.tolist()) == Counter(
            row for row, row_id in enumerate(UPDATED) if row_id not in pending
        )
    build(out, UPDATED, update=True, rows_per_shard=rows_per_shard)
    build(tmp_path / "b" / "out", UPDATED, rows_per_shard=rows_per_shard or ROWS_PER_SHARD)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "b" / "out").iterdir()
    }
    assert not [path for path in (tmp_path / ".work").iterdir() if path.suffix not in ("", ".lock")]


def test_an_update_to_fewer_rows_or_another_order_computes_nothing(tmp_path: Path) -> None:
    for number, asked in enumerate((ids(ROWS)[::-1], ids(ROWS)[4:5], ids(ROWS)[7:])):
        out = tmp_path / str(number) / "out"
        build(out, ROWS)
        with ShardBuild(out, header(), asked, update=True) as work:
            assert work.pending() == []
            work.publish()
        build(tmp_path / str(number) / "b", asked)
        whole = contents(tmp_path / str(number) / "b")
        assert contents(out) == whole


@pytest.mark.parametrize("function", ["os.fsync", "os.replace", "os.rename"])
def test_killed_before_any_write_the_old_set_or_the_new_is_there(
    tmp_path: Path, whole: dict[str, bytes], function: str
) -> None:
    """SIGKILL before each; then the same call, or one for the older rows, has its own bytes."""
    build(tmp_path / "before" / "out", ROWS)
    old = contents(tmp_path / "before")
    call, between = 0, 0
    while True:
        out = tmp_path / f"killed{call}" / "out"
        shutil.copytree(tmp_path / "before", out.parent)
        status, stderr = program(out, function, call, "update")
        if status == 0:
            break
        assert status == -signal.SIGKILL, stderr
        left = {name: b for name, b in contents(out.parent).items() if name.startswith("out/")}
        between += not left
        assert left in (old, whole, {}), "never a mixture"
        if call % 2:
            build(out, ROWS, update=True)
            assert {n: b for n, b in contents(out.parent).items() if n[:4] == "out/"} == old
        build(out, UPDATED, update=True)
        assert contents(out.parent) == whole
        call += 5 if function == "os.fsync" else 1
    assert contents(out.parent) == whole
    assert call >= 2
    assert between == (function == "os.rename"), "between two renames the old set is in .work"


def test_a_swap_killed_between_its_renames_is_undone(tmp_path: Path) -> None:
    """By the next run, even if it is interrupted; the older rows are copied from there."""
    out = tmp_path / "a" / "out"
    build(out, ROWS)
    old = contents(out)
    assert program(out, "os.rename", 1, "update")[0] == -signal.SIGKILL
    assert not out.exists()
    with ShardBuild(out, header(), UPDATED, ROWS_PER_SHARD, update=True) as work:
        assert contents(out) == old
        assert work.replaced_rows == (ROWS - 6, 6)


def test_rows_of_an_interrupted_run_on_other_rows_are_kept(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image is removed while hours of work are unfinished; nothing was published yet."""
    monkeypatch.setattr(unfinished_shard, "FLUSH_SECONDS", 0.0)
    out = tmp_path / "a" / "out"
    with pytest.raises(KeyboardInterrupt):
        build(out, ROWS, stop_after=5)
    with ShardBuild(out, header(), UPDATED, ROWS_PER_SHARD, update=True) as work:
        assert work.rows_done == 18 - 6
        assert work.replaced_rows is None
    build(out, UPDATED, update=True)
    assert contents(tmp_path / "a") == whole


def test_a_damaged_shard_of_the_old_set_is_recomputed(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out = tmp_path / "a" / "out"
    build(out, ROWS)
    damaged = out / "shard-00001-of-00003.h5"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    for content in (bytes(data), b"", None):
        damaged.unlink() if content is None else damaged.write_bytes(content)
        build(out, UPDATED, update=True)
        assert contents(tmp_path / "a") == whole
        shutil.rmtree(out)
        build(out, ROWS)
    (out / INDEX_FILE).unlink()
    build(out, UPDATED, update=True)
    assert contents(tmp_path / "a") == whole, "a lost index costs no row"


def test_features_of_another_recipe_are_moved_aside_and_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    recipes: list[dict[str, object]] = [{"scale": n, "equal": (1, 2)} for n in (1, 2)]
    first, other = (header(recipe=recipe) for recipe in recipes)
    build(out, ROWS, recipe=first.recipe)
    old = contents(out)
    with ShardBuild(out, other, UPDATED, ROWS_PER_SHARD, update=True) as work:
        aside = tmp_path / f"out~{first.recipe_hash[:8]}"
        unlike = "holds features of another recipe: scale 1 (requested: 2)"
        assert work.moved == [f"{out} {unlike}: moved aside to {aside}"]
    assert contents(aside) == old
    build(out, UPDATED, update=True, recipe=other.recipe)
    with ShardBuild(out, first, UPDATED, ROWS_PER_SHARD, update=True) as work:
        assert work.moved[1] == f"{aside} was made with the requested options: moved back to {out}"
        assert len(UPDATED) - work.rows_done == 4
    assert not aside.exists()
    assert (tmp_path / f"out~{other.recipe_hash[:8]}").is_dir()


def test_nothing_is_overwritten_by_what_is_moved_aside(tmp_path: Path) -> None:
    out, key = tmp_path / "out", header().recipe_hash[:8]
    for taken in (f"out~{key}", f"out~{key}-2"):
        (tmp_path / taken).mkdir()
        (tmp_path / taken / "notes.txt").write_text("mine")
    build(out, ROWS)
    build(out, ROWS, update=True, weights_sha256="1" * 64)
    assert (tmp_path / f"out~{key}-3" / INDEX_FILE).is_file()
    assert [*(tmp_path / f"out~{key}").iterdir()] == [tmp_path / f"out~{key}" / "notes.txt"]


def test_superseded_features_are_replaced_once_others_are_finished(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(out, ROWS)
    old = contents(out)
    mark_superseded(out, header().recipe_hash)
    with pytest.raises(KeyboardInterrupt):
        build(out, ROWS, update=True, stop_after=2, weights_sha256="1" * 64)
    assert contents(out) == old
    build(out, ROWS, update=True, weights_sha256="1" * 64)
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".work"}
    assert FeatureSet(out).index.header.weights_sha256 == "1" * 64
    # The mark is of those features alone.
    build(out, ROWS, update=True)
    assert len([*tmp_path.glob("out~*")]) == 1
