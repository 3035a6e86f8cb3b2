"""Feature sets side by side: the rows of a plain concatenation, and nothing that does not fit."""

import json
import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.store.builder.arrays import write_features
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.convert.export import export
from pipeline.store.convert.merge import merge
from pipeline.store.shards.describe import describe
from pipeline.store.shards.feature_set import FailedRows, FeatureSet, read_set_index
from pipeline.store.shards.format import OK, OtherShard, ShardError
from pipeline.store.shards.side_by_side import VIEW_FILE, write_view
from pipeline.store.shards.verify import verify
from pipeline.store.share.cards.card import write_card
from tests.store.shards.factories import header

IDS = [f"{(7 * k) % 23}.jpg" for k in range(23)]
DIMS = {"a": 4, "b": 7, "c": 1}


def rows_of(name: str, dtype: str = "float32") -> npt.NDArray[np.float32]:
    rows = np.random.default_rng(DIMS[name]).normal(size=(len(IDS), DIMS[name]))
    rows[3] = 0
    return rows.astype(dtype).astype(np.float32)


def part(folder: Path, name: str, order: int = 1, failed: tuple[int, ...] = ()) -> FeatureSet:
    """Write the rows of a part in some order of the ids, of which some have failed."""
    places = np.arange(len(IDS))[::order]
    status = np.isin(places, failed).astype(np.uint8)
    rows = rows_of(name)[places]
    rows[status != OK] = np.nan
    recipe = {"name": name, "dim": DIMS[name]}
    write_features(
        folder / name, [IDS[k] for k in places], rows, recipe=recipe, status=status,
        weights=name, weights_sha256=name * 64, trained_on=["COCO", name], dataset="made",
        rows_per_shard=10,
    )  # fmt: skip
    return FeatureSet(folder / name)


@pytest.mark.parametrize("scaling", ["unit", "none"])
def test_rows_are_those_of_a_plain_concatenation(tmp_path: Path, scaling: str) -> None:
    parts = [part(tmp_path, "a"), part(tmp_path, "b", -1), part(tmp_path, "c")]
    index = write_view(tmp_path / "v", parts, scaling)
    features = FeatureSet(tmp_path / "v")
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == [VIEW_FILE]
    wanted = []
    for name in DIMS:
        rows = rows_of(name)
        lengths = [max(sum(float(x) ** 2 for x in row) ** 0.5, 1e-30) for row in rows]
        wanted.append(rows if scaling == "none" else rows / np.array(lengths)[:, None])
    expected = np.concatenate(wanted, axis=1)
    order = np.random.default_rng(0).permutation(len(IDS))
    found = features.read([IDS[k] for k in order])
    np.testing.assert_allclose(found, expected[order], rtol=1e-6)
    assert found.dtype == np.float32
    assert (features.row(IDS[5]) == features.read(IDS)[5]).all()
    assert (pickle.loads(pickle.dumps(features)).read(IDS) == features.read(IDS)).all()
    assert (index.rows, index.failed_rows, index.header.row_shape) == (len(IDS), 0, (12,))
    assert index == read_set_index(tmp_path / "v") == features.index
    assert index.header.trained_on == ("COCO", "a", "b", "c")
    assert index.header.weights == "a; b; c"


@pytest.mark.parametrize("scaling", ["unit", "none"])
def test_grids_are_concatenated_cell_by_cell(tmp_path: Path, scaling: str) -> None:
    grids = {"g": (2, 3, 4), "h": (2, 3, 5)}
    rows = {n: np.random.default_rng(7).normal(size=(3, *s)) for n, s in grids.items()}
    for name, values in rows.items():
        recipe = {"name": name}
        write_features(tmp_path / name, IDS[:3], values.astype("f4"), recipe=recipe, dataset="made")
    index = write_view(tmp_path / "v", [FeatureSet(tmp_path / n) for n in grids], scaling)
    assert index.header.row_shape == (2, 3, 9)
    found = FeatureSet(tmp_path / "v").read(IDS[:3])
    for image, y, x in np.ndindex(3, 2, 3):
        cells = [values[image, y, x] for values in rows.values()]
        if scaling == "unit":  # of the whole grid, so that cells keep their differences in size
            lengths = [(values[image] ** 2).sum() ** 0.5 for values in rows.values()]
            cells = [cell / length for cell, length in zip(cells, lengths, strict=True)]
        np.testing.assert_allclose(found[image, y, x], [*cells[0], *cells[1]], rtol=1e-5)


def test_what_differs_has_another_name_and_content(tmp_path: Path) -> None:
    a, b, c = (part(tmp_path, name) for name in "abc")
    sets = ([a, b], "unit"), ([b, a], "unit"), ([a, b], "none"), ([a, c], "unit")
    made = [write_view(tmp_path / str(k), *given) for k, given in enumerate(sets)]
    assert len({index.content_sha256 for index in made}) == 4
    assert len({index.header.recipe_hash for index in made}) == 4
    assert [str(index.header.recipe["name"]) for index in made] == ["a+b", "b+a", "none:a+b", "a+c"]
    before = (tmp_path / "0" / VIEW_FILE).stat()
    write_view(tmp_path / "0", [a, b], "unit")
    assert (tmp_path / "0" / VIEW_FILE).stat() == before


def test_a_row_that_failed_in_a_part_has_failed(tmp_path: Path) -> None:
    parts = [part(tmp_path, "a", failed=(2,)), part(tmp_path, "b", -1, failed=(2, 8))]
    index = write_view(tmp_path / "v", parts, "unit")
    features = FeatureSet(tmp_path / "v")
    assert index.failed_rows == 2
    assert [(i, reason) for i, _, reason in features.failures()] == [
        (IDS[2], "a: unreadable"),
        (IDS[8], "b: unreadable"),
    ]
    with pytest.raises(FailedRows, match="b: unreadable"):
        features.read([IDS[8]])
    assert np.isnan(features.read([IDS[8]], allow_failed=True)).all()


def test_a_part_that_changes_is_noticed(tmp_path: Path) -> None:
    write_view(tmp_path / "v", [part(tmp_path, "a"), part(tmp_path, "b")], "unit")
    assert verify(tmp_path / "v").faults == []
    assert verify(tmp_path / "v").rows == 2 * len(IDS)
    shard = min((tmp_path / "b").glob("*.h5"))
    whole = shard.read_bytes()
    at = whole.index(rows_of("b")[0].tobytes())
    shard.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert any(fault.file == f"b/{shard.name}" for fault in verify(tmp_path / "v").faults)
    shard.write_bytes(whole)
    for path in (tmp_path / "b").iterdir():
        path.unlink()
    with pytest.raises(ShardError, match=r"b/index\.json not found"):
        FeatureSet(tmp_path / "v")
    part(tmp_path, "b", failed=(1,))
    with pytest.raises(OtherShard, match="has changed since"):
        FeatureSet(tmp_path / "v")
    assert len(verify(tmp_path / "v").faults) == 1


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    a, b = part(tmp_path, "a"), part(tmp_path, "b")
    write_features(
        tmp_path / "few", IDS[:4], rows_of("c")[:4], recipe={"name": "f"}, dataset="made"
    )
    grid = rows_of("a").reshape(-1, 2, 2)
    write_features(tmp_path / "grid", IDS, grid, recipe={"name": "g"}, dataset="made")
    far = part(tmp_path / "elsewhere", "c")
    for parts, scaling, expected in (
        ([a], "unit", "at least two different feature sets"),
        ([a, a], "unit", "different feature sets"),
        ([a, b], "whitened", "known: unit, none"),
        ([a, FeatureSet(tmp_path / "few")], "unit", "19 ids are in only one of them"),
        ([a, FeatureSet(tmp_path / "grid")], "unit", r"shape \(2, 2\), .* of \(4,\)"),
        ([a, far], "unit", "not in the parent folder"),
    ):
        with pytest.raises(ShardError, match=expected):
            write_view(tmp_path / "v", parts, scaling)
    assert not (tmp_path / "v").exists()
    with pytest.raises(OtherShard, match="holds shards"):
        write_view(tmp_path / "a", [b, part(tmp_path, "c")], "unit")
    write_view(tmp_path / "v", [a, b], "unit")
    with (
        pytest.raises(OtherShard, match="is a view of other feature sets"),
        ShardBuild(tmp_path / "v", header(), ["x"]),
    ):
        pass


def test_parts_of_different_pictures_are_refused(tmp_path: Path) -> None:
    a, b = part(tmp_path, "a"), part(tmp_path, "b")
    a.source_crc32[:] = 5
    b.source_crc32[4] = 5
    write_view(tmp_path / "v", [a, b], "unit")
    b.source_crc32[4] = 6
    with pytest.raises(ShardError, match=rf"different images for 1 ids, first '{IDS[4]}'"):
        write_view(tmp_path / "v", [a, b], "unit")


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"scaling": "x"},
        {"rows": -1},
        {"parts": [{"folder": name, "content_sha256": ""} for name in ("../a", "b")]},
        {"parts": []},
    ],
)
def test_an_altered_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write_view(tmp_path / "v", [part(tmp_path, "a"), part(tmp_path, "b")], "unit")
    path = tmp_path / "v" / VIEW_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ShardError, match="not a view of feature sets"):
        FeatureSet(tmp_path / "v")


def test_tools_describe_a_view_and_write_its_rows(tmp_path: Path) -> None:
    write_view(tmp_path / "v", [part(tmp_path, "a"), part(tmp_path, "b")], "unit")
    features = FeatureSet(tmp_path / "v")
    assert "2 sets side by side (a, b)" in describe(tmp_path / "v")[0]
    for refused in (
        lambda: export(tmp_path / "v", tmp_path / "v.h5", to="h5"),
        lambda: write_card(tmp_path / "v"),
    ):
        with pytest.raises(ShardError, match="pipeline shards merge"):
            refused()
    merged = merge([tmp_path / "v"], tmp_path / "rows")
    assert merged.header.recipe_hash == features.recipe_hash
    assert (FeatureSet(tmp_path / "rows").read(IDS) == features.read(IDS)).all()
    assert export(features, tmp_path / "x_ims.npy", to="npy") == len(IDS)
