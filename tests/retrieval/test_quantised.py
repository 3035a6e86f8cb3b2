"""Quantised rows: naive codes and searches, faiss, files, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings, write_embeddings
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.quantised.codes import (
    QuantisedRows,
    Quantiser,
    StoreError,
    quantiser_for,
    shortened,
)
from pipeline.retrieval.quantised.two_stage import candidates, nearest_stored
from pipeline.retrieval.search import Gallery, nearest
from pipeline.retrieval.similarity import unit_rows
from tests.retrieval.factories import made, noisy

DIM = 70


def vectors(rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scales = 1 + rng.random(DIM) * 3
    return (rng.standard_normal((rows, DIM)) * scales + 0.5).astype(np.float32)


def quantised(store: Any, rows: int = 300) -> tuple[QuantisedRows, np.ndarray, Quantiser]:
    quantiser = quantiser_for(store, "cosine", vectors(500, 1), vectors(500, 2))
    assert quantiser is not None
    return quantiser.encode(vectors(rows, 3), "images", "cosine"), vectors(9, 4), quantiser


def gallery_of(rows: Any, similarity: str = "cosine") -> Gallery:
    ids = tuple(f"{(7 * row) % len(rows):04d}" for row in range(len(rows)))
    return Gallery("images", ids, rows, similarity)


def test_codes_are_those_of_a_naive_loop() -> None:
    stored, *_ = quantised("binary", 20)
    rows, calibration = (unit_rows(vectors(*of)).astype(np.float32) for of in ((20, 3), (500, 1)))
    middle = [np.float32(calibration[:, d].mean(dtype=np.float64)) for d in range(DIM)]
    reach = [max(abs(v - middle[d]) for v in calibration[:, d]) for d in range(DIM)]
    assert stored.bits is not None
    bits = np.unpackbits(stored.bits, axis=1)
    for row in range(20):
        for d in range(DIM):
            code = round((rows[row, d] - middle[d]) / (reach[d] / np.float32(127)))
            assert stored.codes[row, d] == max(-127, min(127, code))
            assert bits[row, d] == (rows[row, d] > middle[d])
    inside = np.abs(rows - middle) <= np.array(reach)
    assert (
        np.abs(stored[:] - rows)[inside] <= 0.51 * np.broadcast_to(reach, rows.shape)[inside] / 127
    ).all()
    assert stored.take(np.array([3, 1]))[1:].tolist() == stored[[1]].tolist()
    assert np.asarray(stored).dtype == np.float32


def test_the_farthest_calibration_row_has_the_last_code_and_its_own_value() -> None:
    """127 steps reach exactly the largest distance from the middle, in each dimension."""
    calibration = vectors(500, 1)
    for similarity in ("cosine", "euclidean"):
        quantiser = quantiser_for("int8", similarity, calibration, calibration)
        assert quantiser is not None
        stored = quantiser.encode(calibration, "images", similarity)
        rows = unit_rows(calibration) if similarity == "cosine" else calibration
        far = np.abs(rows - quantiser.middles["images"]).argmax(axis=0)
        every = np.arange(DIM)
        assert (np.abs(stored.codes[far, every]) == 127).all()
        np.testing.assert_allclose(stored[:][far, every], rows[far, every], rtol=1e-6, atol=1e-7)


def test_a_zero_vector_stays_one() -> None:
    *_, quantiser = quantised("int8")
    rows = np.vstack((np.zeros((1, DIM), np.float32), vectors(2, 3)))
    stored = quantiser.encode(rows, "images", "cosine")
    assert not stored[0].any()
    assert stored[1:].any(axis=1).all()


@pytest.mark.parametrize("store", ["float16", "int8", "binary"])
def test_two_stages_find_what_a_search_of_the_stored_vectors_finds(store: str) -> None:
    stored, queries, quantiser = quantised(store)
    represented = stored.codes.astype(np.float32)
    if store != "float16":
        represented = represented * quantiser.steps["images"] + quantiser.middles["images"]
    expected = nearest(gallery_of(represented), queries, "captions", 5)
    # All rows are candidates, so the first stage misses none.
    found = nearest_stored(gallery_of(stored), queries, "captions", 5, rescore=60)
    assert (found.rows == expected.rows).all()
    assert (found.scores == expected.scores).all()
    by_default = nearest_stored(gallery_of(stored), queries, "captions", 5)
    assert np.isin(by_default.rows, expected.rows).mean() > 0.9
    assert nearest_stored(gallery_of(stored), queries[:0], "captions", 5).rows.shape == (0, 5)
    with pytest.raises(EmbeddingsError, match="embed both with one head"):
        nearest_stored(gallery_of(stored), queries[:, :3], "captions", 5)
    if store == "int8":  # other similarities are searched exactly
        gallery, rows = gallery_of(stored, "euclidean"), gallery_of(represented, "euclidean")
        found = nearest_stored(gallery, queries, "captions", 3)
        assert (found.rows == nearest(rows, queries, "captions", 3).rows).all()


@pytest.mark.parametrize("number", [1, 7, 300])
def test_candidates_are_those_of_a_naive_loop(number: int) -> None:
    for store in ("int8", "binary"):
        stored, queries, quantiser = quantised(store)
        found = candidates(stored, queries, "captions", number)
        for query, rows in zip(unit_rows(queries).astype(np.float32), found, strict=True):
            if store == "int8":
                scores = [-float(np.dot(stored[row], query)) for row in range(300)]
            else:
                assert stored.bits is not None
                asked = query > quantiser.middles["captions"]
                bits = np.unpackbits(stored.bits, axis=1, count=DIM)
                scores = [int((row != asked).sum()) for row in bits]
                expected = sorted(range(300), key=lambda row: (scores[row], row))[:number]
                assert rows.tolist() == expected
            assert max(scores[row] for row in rows) <= sorted(scores)[number - 1] + 1e-5


def test_faiss_ranks_the_same_codes_alike() -> None:
    faiss = pytest.importorskip("faiss", reason="needs the extra search")
    stored, queries, quantiser = quantised("binary")
    assert stored.bits is not None
    flat = faiss.IndexBinaryFlat(8 * stored.bits.shape[1])
    flat.add(stored.bits)
    distances, _ = flat.search(quantiser.signs(unit_rows(queries), "captions"), 40)
    bits = np.unpackbits(stored.bits, axis=1, count=DIM)
    asked = unit_rows(queries) > quantiser.middles["captions"]
    for query, rows in enumerate(candidates(stored, queries, "captions", 40)):
        assert (bits[rows] != asked[query]).sum(axis=1).tolist() == distances[query].tolist()
    plain, _, _ = quantised("int8")
    index = faiss.IndexScalarQuantizer(
        DIM, faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
    )
    index.add(plain.codes.astype(np.float32))
    assert plain.step is not None
    _, rows = index.search((unit_rows(queries) * plain.step).astype(np.float32), 40)
    for theirs, ours in zip(rows, candidates(plain, queries, "captions", 40), strict=True):
        assert len({*theirs.tolist()} & {*ours.tolist()}) >= 39


@pytest.mark.parametrize(
    ("store", "similarity", "share"), [("float16", "cosine", 2), ("float16", "scan-t2i-avg", 2),
    ("int8", "order", 4), ("int8", "cosine", 4), ("binary", "cosine", 3)],
)  # fmt: skip
def test_a_file_holds_codes_and_their_calibration(
    store: Any, similarity: str, share: int, tmp_path: Path
) -> None:
    space = replace(made([1, 3, 2, 4], similarity), provenance={"split": "train"})
    path, again = tmp_path / "small.h5", tmp_path / "again.h5"
    write_embeddings(path, space, store=store)
    write_embeddings(again, space, store=store, calibrate_on=space)
    assert path.read_bytes() == again.read_bytes()
    with h5py.File(path) as file:
        assert file.attrs["store"] == store
        numbers = [
            file[f"images/{name}"] for name in ("embedding", "bits") if name in file["images"]
        ]
        assert 4 * space.image_embeddings.size // sum(n.nbytes for n in numbers) == share
        if store != "float16":
            assert '"split":"train"' in file.attrs["calibration"]
            assert file["captions/step"].shape == file["captions/middle"].shape == (9,)
    plain, coded = read_embeddings(path), read_embeddings(path, codes=True)
    assert isinstance(plain.image_embeddings, np.ndarray)
    assert isinstance(coded.caption_embeddings, QuantisedRows)
    unit = (lambda rows: unit_rows(rows)) if similarity == "cosine" else (lambda rows: rows)
    for side in ("image_embeddings", "caption_embeddings"):
        rows = unit(getattr(space, side))
        assert np.allclose(getattr(plain, side), rows, atol=0.02 * np.abs(rows).max())
        assert (getattr(coded, side)[:] == getattr(plain, side)).all()
    assert plain.caption_image_ids == coded.caption_image_ids


def test_small_files_are_evaluated(tmp_path: Path) -> None:
    space = noisy(200, 0.4, seed=1)
    write_embeddings(tmp_path / "plain.h5", space)
    write_embeddings(tmp_path / "int8.h5", space, store="int8")
    plain, small, short = (
        evaluate(tmp_path / name, tmp_path / "table", dim=dim).table
        for name, dim in (("plain.h5", None), ("int8.h5", None), ("plain.h5", 4))
    )
    assert abs(float(plain["rsum"]) - float(small["rsum"])) < 6
    assert float(short["rsum"]) < float(plain["rsum"])
    whole = evaluate(tmp_path / "plain.h5", tmp_path / "table", dim=8).table
    assert whole == plain


def test_shortened_vectors_are_prefixes_of_length_one() -> None:
    rows = vectors(4, 0)
    expected = rows[:, :9] / np.linalg.norm(rows[:, :9].astype(np.float64), axis=1)[:, None]
    assert np.allclose(shortened(rows, 9, "cosine"), expected, atol=1e-7)
    for dim, similarity, said in ((0, "cosine", "dim=0"), (71, "cosine", "70"), (3, "dot", "dot")):
        with pytest.raises(StoreError, match=said):
            shortened(rows, dim, similarity)


@pytest.mark.parametrize(
    ("store", "similarity", "scale", "said"),
    [
        ("binary", "euclidean", 1, "directions"),
        ("int8", "scan-t2i-avg", 1, "sets"),
        ("int4", "cosine", 1, "expected one of float32"),
        ("float16", "dot", 1e6, "exceed float16"),
    ],
)
def test_what_cannot_be_stored_is_refused(
    store: Any, similarity: str, scale: float, said: str, tmp_path: Path
) -> None:
    e = made([1], similarity)
    e.image_embeddings[:] *= np.float32(scale)
    with pytest.raises(StoreError, match=said):
        write_embeddings(tmp_path / "e.h5", e, store=store)
    assert not (tmp_path / "e.h5").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.attrs.__setitem__("store", "int4"), "'store' is 'int4'"),
        (lambda file: file.attrs.__setitem__("store", "float16"), "is int8 .* expected float16"),
        (lambda file: file.attrs.__setitem__("calibration", "["), "'calibration' is not a JSON"),
    ],
)
def test_a_damaged_small_file_is_refused(damage: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "e.h5"
    write_embeddings(path, made([1, 2], "cosine"), store="binary")
    with h5py.File(path, "r+") as file:
        damage(file)
    with pytest.raises(EmbeddingsError, match=said):
        read_embeddings(path)


def test_zero_vectors_do_not_crowd_out_the_best() -> None:
    """Such as captions without a known word: their codes are no numbers to compare with."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 16)).astype(np.float32)
    rows[100:] = 0.0
    quantiser = quantiser_for("int8", "cosine", rows, rows)
    assert quantiser is not None
    gallery = gallery_of(quantiser.encode(rows, "images", "cosine"))
    queries = rng.normal(size=(20, 16)).astype(np.float32)
    expected = nearest(gallery, queries, "captions", 5)
    found = nearest_stored(gallery, queries, "captions", 5)
    np.testing.assert_array_equal(found.rows, expected.rows)
