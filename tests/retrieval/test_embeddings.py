"""The embedding file: round trip, equal bytes, other people's files, every refusal."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import (
    EmbeddingsHeader,
    read_embeddings,
    write_embeddings,
    write_in_blocks,
)
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.shards.format import ShardError


@pytest.fixture
def embeddings() -> Embeddings:
    rng = np.random.default_rng(0)
    return Embeddings(
        ("zebra", "été/1.jpg"),
        rng.standard_normal((2, 3)).astype(np.float32),
        ("été/1.jpg#0", "zebra#0", "zebra#1"),
        ("été/1.jpg", "zebra", "zebra"),
        rng.standard_normal((3, 3)).astype(np.float32),
        "cosine",
        {"recipe": {"name": "x"}, "vocabulary": ["w"] * 50_000},
    )


def test_a_full_disk_is_named_before_h5py_finds_it(
    embeddings: Embeddings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ShardError, match=r"e\.h5 of 572 bytes could not be written .*No space"):
        write_embeddings(tmp_path / "e.h5", embeddings)
    assert not list(tmp_path.iterdir())


def test_blocks_are_written_as_the_whole_is(embeddings: Embeddings, tmp_path: Path) -> None:
    e, whole, path = embeddings, tmp_path / "whole.h5", tmp_path / "blocks.h5"
    header = EmbeddingsHeader(
        e.image_ids, e.caption_ids, e.caption_image_ids, e.similarity, e.provenance
    )
    images, captions = np.split(e.image_embeddings, 2), np.split(e.caption_embeddings, [1])
    write_embeddings(whole, e)
    assert same(write_in_blocks(path, header, iter(images), iter(captions)), e)
    assert path.read_bytes() == whole.read_bytes()

    def broken() -> Iterator[np.ndarray]:
        yield captions[0]
        raise RuntimeError("the network failed")

    def full() -> Iterator[np.ndarray]:
        yield captions[0]
        yield np.full_like(captions[1], np.inf)

    for rows, error, said in (
        (broken(), RuntimeError, "^the network failed$"),
        (full(), EmbeddingsError, "captions: 2 rows have NaN or infinite"),
        ([captions[0]], EmbeddingsError, "captions: 3 ids for 1 rows"),
        (
            captions * 2,
            EmbeddingsError,
            r"shape \(1, 3\) follow 3 rows of \(3, 3\)",
        ),
        ([captions[0][:, :2]], EmbeddingsError, "captions: 3 ids for 1"),
        ([], EmbeddingsError, "captions: 3 ids for 0 rows"),
    ):
        with pytest.raises(error, match=said):
            write_in_blocks(tmp_path / "no.h5", header, images, rows)
    with pytest.raises(EmbeddingsError, match="images: found none"):
        write_in_blocks(tmp_path / "no.h5", header, [], captions)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blocks.h5", "whole.h5"]


def same(a: Embeddings, b: Embeddings) -> bool:
    return (
        (a.image_ids, a.caption_ids, a.caption_image_ids, a.similarity, a.provenance)
        == (b.image_ids, b.caption_ids, b.caption_image_ids, b.similarity, b.provenance)
        and np.array_equal(a.image_embeddings, b.image_embeddings)
        and np.array_equal(a.caption_embeddings, b.caption_embeddings)
    )


def test_round_trip_and_equal_bytes(tmp_path: Path, embeddings: Embeddings) -> None:
    one, two = tmp_path / "one.h5", tmp_path / "deeper" / "two.h5"
    write_embeddings(one, embeddings)
    time.sleep(1.1)  # HDF5 would stamp whole seconds
    write_embeddings(two, embeddings)
    assert one.read_bytes() == two.read_bytes()
    assert same(read_embeddings(one), embeddings)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["one.h5"]
    with h5py.File(one) as file:
        assert file.attrs["format"] == "pipeline-embeddings"
        assert file.attrs["format_version"] == 1
        assert "numpy" in file.attrs["created_by"]


@pytest.mark.usefixtures("tried_apart")
def test_a_file_that_hangs_hdf5_is_refused(embeddings: Embeddings, tmp_path: Path) -> None:
    """One bit of the length that stands before a text in HDF5's heap: an endless loop in 2.0."""
    write_embeddings(tmp_path / "e.h5", embeddings)
    data = bytearray((tmp_path / "e.h5").read_bytes())
    data[data.index(b"zebra#1") - 7] ^= 2
    (tmp_path / "e.h5").write_bytes(data)
    with pytest.raises(EmbeddingsError, match=r"e\.h5: HDF5 did not finish"):
        read_embeddings(tmp_path / "e.h5")


def test_sets_of_vectors_round_trip(tmp_path: Path, embeddings: Embeddings) -> None:
    rng = np.random.default_rng(1)
    sets = replace(
        embeddings,
        image_embeddings=rng.standard_normal((2, 5, 3)).astype(np.float32),
        caption_embeddings=rng.standard_normal((3, 2, 3)).astype(np.float32),
        similarity="scan-t2i-avg",
    )
    write_embeddings(tmp_path / "e.h5", sets)
    assert same(read_embeddings(tmp_path / "e.h5"), sets)
    with pytest.raises(EmbeddingsError, match=r"\(rows, dim\) for the similarity cosine"):
        replace(sets, similarity="cosine")
    with pytest.raises(EmbeddingsError, match=r"\(rows, parts, dim\) for the similarity scan-i2t"):
        replace(embeddings, similarity="scan-i2t-lse")
    with pytest.raises(EmbeddingsError, match="images have 3 dimensions and captions 4"):
        replace(sets, caption_embeddings=np.ones((3, 2, 4), np.float32))
    with pytest.raises(EmbeddingsError, match="without a dimension"):
        replace(sets, caption_embeddings=np.ones((3, 0, 3), np.float32))
    sets.caption_embeddings[1, 1, 0] = np.nan
    with pytest.raises(EmbeddingsError, match=r"1 row has NaN.*\['zebra#0'\]"):
        replace(sets)


def foreign(path: Path, **changes: Any) -> Path:
    """A file as somebody else might write it; None leaves a part out."""
    parts: dict[str, Any] = {
        "images/embedding": np.eye(2, 4),
        "images/id": [b"a", b"b"],
        "captions/embedding": np.ones((3, 4)),
        "captions/id": ["a0", "a1", "b0"],
        "captions/image_id": ["a", "a", "b"],
        "similarity": "dot",
    } | changes
    with h5py.File(path, "w") as file:
        for name, value in parts.items():
            if value is None:
                continue
            if "/" in name:
                file[name] = value
            else:
                file.attrs[name] = value
    return path


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
def test_any_float_becomes_float32(tmp_path: Path, dtype: str) -> None:
    rows = np.linspace(-1, 1, 8).reshape(2, 4).astype(dtype)
    e = read_embeddings(foreign(tmp_path / "e.h5", **{"images/embedding": rows}))
    assert e.image_embeddings.dtype == np.float32
    assert e.image_embeddings.dtype.isnative
    assert np.array_equal(e.image_embeddings, rows.astype(np.float32))
    assert e.provenance == {}


def test_ids_of_any_kind(tmp_path: Path) -> None:
    e = read_embeddings(
        foreign(
            tmp_path / "e.h5",
            **{
                "images/id": np.array([7, 12], dtype=np.int32),
                "captions/image_id": ["7", "12", "12"],
                "captions/id": np.array(["é".encode(), b"x", b"longer"]),
                "similarity": np.bytes_(b"euclidean"),
            },
        )
    )
    assert e.image_ids == ("7", "12")
    assert e.caption_ids == ("é", "x", "longer")
    assert e.similarity == "euclidean"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images/embedding": None}, "dataset 'images/embedding' is missing"),
        ({"captions/image_id": None}, "dataset 'captions/image_id' is missing"),
        ({"images/embedding": None, "images/id": None}, "the file has captions"),
        ({"images/embedding": np.ones(4)}, r"of shape \(4,\), expected floats"),
        ({"images/embedding": np.ones((2, 4), int)}, r"int64 of shape \(2, 4\), expected floats"),
        ({"images/embedding": np.full((2, 4), 1e300)}, r"images: 2 rows have NaN.*'a', 'b'"),
        ({"images/embedding": np.array([[1.0] * 4, [np.nan] * 4])}, r"1 row has NaN.*\['b'\]"),
        ({"images/embedding": np.ones((2, 5))}, "5 dimensions and captions 4"),
        (
            {"images/embedding": np.ones((3, 4))},
            r"'images/id' is object of .* texts of shape \(3,\)",
        ),
        ({"images/embedding": np.ones((0, 4)), "images/id": np.ones(0, int)}, "found no rows"),
        ({"images/id": [b"a", b"a"]}, r"1 ids occur more than once, first \['a'\]"),
        ({"images/id": [0.5, 1.5]}, "float64 of shape .*expected texts"),
        ({"images/id": np.array([b"a", b"\xff"])}, "can't decode byte 0xff"),
        ({"captions/id": ["x", "", "y"]}, "empty ids"),
        ({"captions/image_id": ["a", "b", "c"]}, r"1 missing images.*\['c'\]"),
        (
            {"captions/image_id": ["a", "b"]},
            r"'captions/image_id' is object of .* texts",
        ),
        ({"similarity": None}, "no attribute 'similarity'"),
        ({"similarity": 3}, "'similarity' is 3, expected text"),
        ({"similarity": "scan-t2i-avg"}, r"of shape \(2, 4\), expected floats of shape"),
        ({"similarity": "manhattan"}, "'manhattan' is not known; expected one of cosine, euc"),
        ({"provenance": "no json"}, "not a JSON object"),
        ({"provenance": "[]"}, "not a JSON object"),
        ({"provenance": '{"dataset": "\\ud800"}'}, "not a JSON object"),
        ({"format": "other"}, "its format is 'other'"),
        ({"format": "pipeline-embeddings", "format_version": 2}, "version 2"),
    ],
)
def test_refusals_name_the_file(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = foreign(tmp_path / "e.h5", **changes)
    with pytest.raises(EmbeddingsError, match=message) as caught:
        read_embeddings(path)
    assert str(path) in str(caught.value)


def external_link(folder: Path) -> None:
    with h5py.File(folder / "e.h5", "a") as file:
        del file["images/embedding"]
        file["images/embedding"] = h5py.ExternalLink("other.h5", "images/embedding")


def external_storage(folder: Path) -> None:
    (folder / "raw").write_bytes(np.ones((2, 4)).tobytes())
    with h5py.File(folder / "e.h5", "a") as file:
        del file["images/embedding"]
        file.create_dataset("images/embedding", (2, 4), "f8", external=str(folder / "raw"))


def virtual(folder: Path) -> None:
    layout = h5py.VirtualLayout((2, 4), "f8")
    layout[:] = h5py.VirtualSource(folder / "other.h5", "images/embedding", (2, 4))
    with h5py.File(folder / "e.h5", "a") as file:
        del file["images/embedding"]
        file.create_virtual_dataset("images/embedding", layout)


@pytest.mark.parametrize("lead_away", [external_link, external_storage, virtual])
def test_rows_of_another_file_are_refused(
    tmp_path: Path, lead_away: Callable[[Path], None]
) -> None:
    foreign(tmp_path / "other.h5")
    foreign(tmp_path / "e.h5")
    lead_away(tmp_path)
    with pytest.raises(EmbeddingsError, match="is stored in other files"):
        read_embeddings(tmp_path / "e.h5")


def test_failed_write_leaves_nothing(tmp_path: Path, embeddings: Embeddings) -> None:
    with pytest.raises(TypeError):
        write_embeddings(tmp_path / "e.h5", replace(embeddings, provenance={"x": object()}))
    assert list(tmp_path.iterdir()) == []


def test_float64_rows_in_memory_are_refused(embeddings: Embeddings) -> None:
    with pytest.raises(EmbeddingsError, match="float64 of shape"):
        replace(embeddings, image_embeddings=embeddings.image_embeddings.astype(np.float64))
