"""The comparison of replay finds every difference of bytes and names the place."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from bench.replay.cases import Case, Step, all_cases, parse_cases, selected
from bench.replay.compare import changed, compare, outputs
from bench.replay.explained import EXPLAINED, Explained


def _write(folder: Path) -> None:
    folder.mkdir()
    with h5py.File(folder / "shard.h5", "w") as file:
        file["features"] = np.arange(12, dtype=np.float32).reshape(4, 3)
        file["ids"] = ["a", "b", "c", "d"]
        file.attrs["recipe_hash"] = "0123"
    (folder / "index.json").write_text(json.dumps({"rows": 4, "shards": [{"sha256": "ab"}]}))
    save_file({"weight": np.ones(3, np.float32), "bias": np.zeros(2)}, folder / "head.safetensors")
    (folder / "lines.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "rows.npy").write_bytes(b"\x93NUMPY\xff" + bytes(20))


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the same files."""
    _write(tmp_path / "base")
    shutil.copytree(tmp_path / "base", tmp_path / "tree")
    return tmp_path / "base", tmp_path / "tree"


def _found(sides: tuple[Path, Path], *explanations: Explained) -> tuple[list[str], list[str]]:
    names = outputs(sides[0]).keys() | outputs(sides[1]).keys()
    result = compare(*sides, names, explanations)
    return [str(d) for d in result.differences], [str(d) for d in result.explained]


def _flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_equal_files(sides: tuple[Path, Path]) -> None:
    result = compare(*sides, outputs(sides[1]), EXPLAINED)
    size = sum(path.stat().st_size for path in sides[1].iterdir())
    assert (result.files, result.bytes) == (5, size)
    assert (result.differing_files, result.explained_files) == (0, 0)


def test_places_in_hdf5(sides: tuple[Path, Path]) -> None:
    with h5py.File(sides[1] / "shard.h5", "r+") as file:
        file["features"][2, 1] = np.nan
        file.attrs["recipe_hash"] = "4567"
    assert _found(sides)[0] == [
        "shard.h5: attribute recipe_hash: 0123 != 4567",
        "shard.h5: dataset features: 7.0 != nan at [2, 1], 1 of 12 values differ",
    ]


def test_other_storage_of_the_same_rows(sides: tuple[Path, Path]) -> None:
    with h5py.File(sides[1] / "shard.h5", "r+") as file:
        rows = file["features"][()]
        del file["features"]
        file.create_dataset("features", data=rows, chunks=(2, 3), compression="gzip")
    (found,) = _found(sides)[0]
    assert found.startswith("shard.h5: filters of dataset features: (None, None")


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("head.safetensors", "head.safetensors: tensor "),
        ("lines.csv", "lines.csv: line 3: 3,4 != '3,4\\x0b'"),
        ("rows.npy", "rows.npy: byte 26: 27 and 27 bytes"),
    ],
)
def test_a_changed_byte_is_found(sides: tuple[Path, Path], file: str, place: str) -> None:
    _flip_last_byte(sides[1] / file)
    (found,) = _found(sides)[0]
    assert found.startswith(place)


def test_places_in_json(sides: tuple[Path, Path]) -> None:
    file = sides[1] / "index.json"
    file.write_text(json.dumps({"rows": 5, "shards": [{"sha256": "cd"}], "more": None}))
    assert _found(sides)[0] == [
        "index.json: key rows: 4 != 5",
        "index.json: key shards[0].sha256: ab != cd",
        "index.json: key more: missing != None",
    ]
    file.write_text(json.dumps(json.loads((sides[0] / "index.json").read_text()), indent=1))
    assert _found(sides)[0] == ["index.json: layout: the same contents, stored otherwise"]


def test_files_of_one_side(sides: tuple[Path, Path]) -> None:
    (sides[0] / "lines.csv").unlink()
    (sides[1] / "index.json").unlink()
    assert _found(sides)[0] == ["index.json: only in base", "lines.csv: only in tree"]


def test_a_file_is_explained_if_all_its_differences_are(sides: tuple[Path, Path]) -> None:
    known = Explained("*.json", "key rows", "counted another way")
    (sides[1] / "index.json").write_text(json.dumps({"rows": 5, "shards": [{"sha256": "ab"}]}))
    assert _found(sides, known) == ([], ["index.json: key rows: 4 != 5"])
    (sides[1] / "index.json").write_text(json.dumps({"rows": 5, "shards": [{"sha256": "cd"}]}))
    assert len(_found(sides, known)[0]) == 2


def test_outputs_are_files_without_work_folders(tmp_path: Path) -> None:
    for name in ("a/b.h5", "a/.work/b.lock", ".hidden", "c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    before = outputs(tmp_path)
    assert list(before) == ["a/b.h5", "c.txt"]
    (tmp_path / "c.txt").write_text("xx")
    (tmp_path / "a/b.h5").unlink()
    (tmp_path / "d.txt").write_text("x")
    assert changed(before, outputs(tmp_path)) == {"a/b.h5", "c.txt", "d.txt"}


def test_cases_are_read() -> None:
    text = (
        "# of both\n[first]\nrecipes\n\n[second] after first\n"
        "extract --out 'a b'\n    --limit 1 => 3\n"
    )
    assert list(parse_cases(text)) == [
        Case("first", (Step(("recipes",)),)),
        Case("second", (Step(("extract", "--out", "a b", "--limit", "1"), 3),), ("first",)),
    ]
    with pytest.raises(ValueError, match="precedes the first"):
        list(parse_cases("recipes\n"))


def test_cases_are_selected_with_those_that_they_need() -> None:
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names)
    for case in all_cases():
        assert all(names.index(before) < names.index(case.name) for before in case.after)
    assert [case.name for case in selected(["unusable-clips"])] == ["clips", "unusable-clips"]
    with pytest.raises(ValueError, match="the cases are scenes, "):
        selected(["no-such-case"])
