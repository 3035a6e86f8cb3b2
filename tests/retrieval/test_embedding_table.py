"""Tables of feature sets and embedding files, opened by the programs of others."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import feather, parquet

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.retrieval import EmbeddingsError, embedding_table
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embedding_table import export_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.convert.export import export
from pipeline.store.errors import WrongUsage
from pipeline.store.files import OutputError
from pipeline.store.shards.feature_set import FeatureSet, MissingRows
from stages.shards import shards as command
from tests.retrieval.factories import made, written
from tests.store.shards.factories import build, ids

ROWS = 23


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> Embeddings:
    """Embeddings that are exported a few rows at a time."""
    monkeypatch.setattr(embedding_table, "_BLOCK_BYTES", 4 * 9 * 4)
    return made([2, 0, 3, 1], "cosine")


def vectors_of(table: pa.Table) -> np.ndarray:
    """Return the vectors of a table without null."""
    vectors = table["vector"].combine_chunks()
    return np.asarray(vectors.flatten()).reshape(len(vectors), -1)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "feather"])
def test_images_and_captions_are_rows(space: Embeddings, tmp_path: Path, kind: str) -> None:
    file = written(tmp_path, "e", space)
    entries = tuple(
        ImageEntry(image, image, "test", tuple(f"{image} {k}" for k in range(3)))
        for image in space.image_ids
    )
    Manifest("made", tmp_path, entries, "CC0", "drawn", {}).write(tmp_path / "data")
    out = tmp_path / f"e.{kind}"
    assert export_embeddings(file, out, dataset=tmp_path / "data") == 10
    table = parquet.read_table(out) if kind == "parquet" else feather.read_table(out)
    assert table.column_names == ["id", "side", "image_id", "split", "captions", "vector"]
    assert table["id"].to_pylist() == [*space.image_ids, *space.caption_ids]
    assert table["side"].to_pylist() == ["image"] * 4 + ["caption"] * 6
    assert table["image_id"].to_pylist() == [*space.image_ids, *space.caption_image_ids]
    assert table["captions"].to_pylist()[3:5] == [
        list(entries[3].captions),
        [space.caption_ids[0].replace("#", " ")],
    ]
    rows = np.concatenate([space.image_embeddings, space.caption_embeddings])
    np.testing.assert_array_equal(vectors_of(table), rows)
    about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert (about["similarity"], json.loads(about["row_shape"])) == ("cosine", [9])
    if kind == "parquet":
        assert parquet.ParquetFile(out).num_row_groups == 3
    export_embeddings(file, tmp_path / f"again.{kind}", dataset=tmp_path / "data")
    assert (tmp_path / f"again.{kind}").read_bytes() == out.read_bytes()


def test_sets_with_fewer_parts_end_in_absent_ones(tmp_path: Path) -> None:
    e = made([2, 1], "scan-t2i-avg")
    longer = np.concatenate([e.caption_embeddings, e.caption_embeddings[:, :1]], axis=1)
    e = Embeddings(
        e.image_ids, e.image_embeddings, e.caption_ids, e.caption_image_ids, longer,
        e.similarity, {},
    )  # fmt: skip
    export_embeddings(written(tmp_path, "e", e), tmp_path / "e.parquet")
    rows = vectors_of(parquet.read_table(tmp_path / "e.parquet")).reshape(5, 5, 9)
    np.testing.assert_array_equal(rows[:2, :4], e.image_embeddings)
    np.testing.assert_array_equal(rows[2:], longer)
    assert not rows[:2, 4].any()


def test_what_cannot_be_exported_is_named(space: Embeddings, tmp_path: Path) -> None:
    file = written(tmp_path, "e", space)
    with pytest.raises(WrongUsage, match="not 'npy'"):
        export_embeddings(file, tmp_path / "e.npy")
    with pytest.raises(EmbeddingsError, match="not found, expected an embedding file"):
        export_embeddings(tmp_path / "none.h5", tmp_path / "e.parquet")
    with pytest.raises(OutputError, match="is a folder"):
        export_embeddings(file, tmp_path, to="arrow")
    entry = ImageEntry("other", "other", "test", ("a",))
    Manifest("made", tmp_path, (entry,), "CC0", "drawn", {}).write(tmp_path / "data")
    with pytest.raises(MissingRows, match=r"row 'im\d' has no image"):
        export_embeddings(file, tmp_path / "e.parquet", dataset=tmp_path / "data")
    assert not list(tmp_path.glob("e.parquet*"))
    export_of = ["export", str(file), "--out", str(tmp_path / "cli.parquet")]
    assert CliRunner().invoke(command, export_of).exit_code == 0
    assert CliRunner().invoke(command, [*export_of, "--copy"]).exit_code != 0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_duckdb_pandas_and_datasets_read_feature_sets(tmp_path: Path, dtype: str) -> None:
    """Two of the rows failed: their vectors are null, their status states why."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    import datasets

    build(tmp_path / "set", ROWS, dtype=dtype)
    files = {kind: str(tmp_path / f"set.{kind}") for kind in ("parquet", "arrow")}
    for file in files.values():
        export(tmp_path / "set", file, allow_failed=True)
    features = FeatureSet(tmp_path / "set")
    ok = features.status == 0
    expected = features.read(features.ids, allow_failed=True).reshape(ROWS, 6)[ok]

    def require(row_ids: list[str], statuses: list[str], vectors: list[Any]) -> None:
        assert (row_ids, statuses.count("unreadable")) == (ids(ROWS), 2)
        assert [vector is not None for vector in vectors] == ok.tolist()
        found = np.array([vector for vector in vectors if vector is not None])
        np.testing.assert_array_equal(found.astype(dtype), expected)

    rows = duckdb.sql(f"SELECT id, status, vector FROM '{files['parquet']}'").fetchall()
    require(*map(list, zip(*rows, strict=True)))
    nearest = duckdb.sql(
        "SELECT id FROM ? WHERE vector IS NOT NULL ORDER BY array_distance(vector::FLOAT[6], "
        "[4, 4.1, 4.2, 4.4, 4.5, 4.6]::FLOAT[6]) LIMIT 1".replace("?", f"'{files['parquet']}'")
    )
    assert nearest.fetchall() == [(ids(ROWS)[4],)]
    for table in (pandas.read_parquet(files["parquet"]), pandas.read_feather(files["arrow"])):
        require(*(table[name].tolist() for name in ("id", "status", "vector")))
    for kind, file in files.items():
        opened = datasets.load_dataset(
            kind, data_files=file, split="train", cache_dir=str(tmp_path / "cache")
        )
        assert opened.features["vector"].length == 6
        require(*([*opened[name]] for name in ("id", "status", "vector")))


def test_duckdb_pandas_and_datasets_read_embeddings(space: Embeddings, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    import datasets

    write_embeddings(tmp_path / "e.h5", space)
    file = str(tmp_path / "e.parquet")
    export_embeddings(tmp_path / "e.h5", file)
    rows = duckdb.sql(
        "SELECT c.id, list_cosine_similarity(i.vector, c.vector) "
        f"FROM '{file}' i JOIN '{file}' c ON c.image_id = i.id "
        "WHERE i.side = 'image' AND c.side = 'caption'"
    ).fetchall()
    images = space.image_embeddings[space.image_of_caption].astype(np.float64)
    captions = space.caption_embeddings.astype(np.float64)
    lengths = np.linalg.norm(images, axis=1) * np.linalg.norm(captions, axis=1)
    cosines = (images * captions).sum(1) / lengths
    assert dict(rows) == pytest.approx(dict(zip(space.caption_ids, cosines, strict=True)), abs=1e-6)
    table = pandas.read_parquet(file)
    found = np.stack([*table[table["side"] == "caption"]["vector"]])
    np.testing.assert_array_equal(found, space.caption_embeddings)
    opened = datasets.load_dataset(
        "parquet", data_files=file, split="train", cache_dir=str(tmp_path / "cache")
    )
    found = opened.with_format("numpy")[:]["vector"]
    np.testing.assert_array_equal(found[: len(space.image_ids)], space.image_embeddings)
