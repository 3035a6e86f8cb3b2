"""Fitted codebooks: the order of their steps, their one file, and the vectors they belong to."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.text import EncoderError
from pipeline.text.fisher import codebook
from pipeline.text.fisher.codebook import Codebook, fit_codebook, load_codebook
from pipeline.text.fisher.mixture import MixtureKind
from pipeline.text.vectors import WordVectors

DIM = 5


@pytest.fixture
def vectors() -> WordVectors:
    rng = np.random.default_rng(0)
    matrix = rng.laplace(size=(500, DIM)) @ rng.normal(size=(DIM, DIM)) + 0.5
    matrix[[3, 77]] = 0
    names = tuple(f"word{row}" for row in range(500))
    return WordVectors("tiny", names, matrix.astype(np.float32), "ab" * 32)


def norms(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    return np.linalg.norm(rows.astype(np.float64), axis=1)


@pytest.mark.parametrize(("kind", "length"), [("gmm", 1), ("hglmm", 10), ("lmm", 10)])
def test_transform_is_norm_whitening_norm_length(
    vectors: WordVectors, kind: MixtureKind, length: int
) -> None:
    fitted = fit_codebook(vectors, kind, 3, seed=0)
    found = fitted.transform(vectors.matrix)
    assert found.dtype == np.float32
    expected_norms = np.full(500, length)
    expected_norms[[3, 77]] = 0
    np.testing.assert_allclose(norms(found), expected_norms, rtol=1e-6)
    unit = vectors.matrix[:3] / norms(vectors.matrix[:3])[:, None]
    turned = unit @ fitted.whitening.T
    expected = length * turned / norms(turned.astype(np.float32))[:, None]
    np.testing.assert_allclose(found[:3], expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(fitted.transform(vectors.matrix[:1]), found[:1])
    assert fitted.transform(vectors.matrix[:0]).shape == (0, DIM)
    assert fitted.mixture.laplace.all() == (kind == "lmm")
    if kind == "gmm":
        assert not fitted.mixture.laplace.any()
    assert fitted.metadata.em_converged is (True if kind == "gmm" else None)


def test_ica_finds_the_sources() -> None:
    rng = np.random.default_rng(1)
    sources = rng.laplace(size=(20000, DIM))
    mixing = rng.normal(size=(DIM, DIM))
    unmixing, iterations = codebook._fit_ica((sources @ mixing.T + 3).astype(np.float32), seed=0)
    gains = np.abs(unmixing @ mixing)
    assert 0 < iterations < 1000
    assert sorted(gains.argmax(axis=1)) == list(range(DIM))
    assert np.sort(gains, axis=1)[:, -2].max() < 0.1 * gains.max(axis=1).min()
    # Of unit variance, so that the norm after it weighs every source alike.
    np.testing.assert_allclose((unmixing @ (mixing @ sources.T)).std(axis=1), 1, rtol=0.01)


def test_equal_words_have_no_ica() -> None:
    with pytest.raises(EncoderError, match="not finite; use a larger sample, or ica=False"):
        codebook._fit_ica(np.ones((60, DIM), np.float32), seed=0)


def test_without_ica_only_the_length_changes(vectors: WordVectors) -> None:
    fitted = fit_codebook(vectors, "hglmm", 3, seed=0, ica=False)
    assert np.array_equal(fitted.whitening, np.eye(DIM, dtype=np.float32))
    assert fitted.metadata.ica_converged is fitted.metadata.ica_iterations is None
    some = vectors.matrix[10:20]
    np.testing.assert_allclose(fitted.transform(some), 10 * some / norms(some)[:, None], rtol=1e-6)


def test_what_did_not_converge_is_told(
    vectors: WordVectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = fit_codebook(vectors, "lmm", 3, seed=0).metadata
    assert metadata.ica_converged is True
    assert metadata.ica_iterations is not None
    assert 1 < metadata.ica_iterations < 1000
    monkeypatch.setattr(codebook, "_ICA_ITERATIONS", 1)
    metadata = fit_codebook(vectors, "lmm", 3, seed=0).metadata
    assert metadata.ica_converged is False
    assert metadata.ica_iterations == 1


def test_same_seed_same_bytes_and_the_file_gives_all_back(
    vectors: WordVectors, tmp_path: Path
) -> None:
    steps: list[str] = []
    first = fit_codebook(vectors, "hglmm", 3, seed=4, sample=300, progress=steps.append)
    assert steps[0] == "ICA of 300 words in 5 dimensions"
    assert steps[-1].startswith("EM iteration 10 of 10")
    first.save(tmp_path / "first.safetensors")
    fit_codebook(vectors, "hglmm", 3, seed=4, sample=300).save(tmp_path / "again.safetensors")
    some = replace(vectors, words=vectors.words[:2], matrix=vectors.matrix[:2])
    loaded = load_codebook(tmp_path / "first.safetensors", some)
    loaded.save(tmp_path / "loaded.safetensors")
    content = (tmp_path / "first.safetensors").read_bytes()
    assert (tmp_path / "again.safetensors").read_bytes() == content
    assert (tmp_path / "loaded.safetensors").read_bytes() == content
    assert loaded.metadata == first.metadata
    assert loaded.metadata.sample == 300
    assert loaded.metadata.source_sha256 == vectors.source_sha256
    for package in ("numpy ", "scipy ", "scikit-learn ", "safetensors "):
        assert package in loaded.metadata.created_by
    assert np.array_equal(loaded.transform(vectors.matrix), first.transform(vectors.matrix))
    other = fit_codebook(vectors, "hglmm", 3, seed=5, sample=300)
    assert not np.array_equal(other.mixture.means, first.mixture.means)


@pytest.fixture
def saved(vectors: WordVectors, tmp_path: Path) -> Path:
    path = tmp_path / "codebook.safetensors"
    fit_codebook(vectors, "lmm", 3, seed=0, ica=False).save(path)
    return path


def test_other_vectors_are_refused_by_their_hash(saved: Path, vectors: WordVectors) -> None:
    other = replace(vectors, name="other", sha256="cd" * 32)
    with pytest.raises(
        EncoderError, match=f"^{saved} .*'tiny' .*{'ab' * 32}.*'other' .*{'cd' * 32}"
    ):
        load_codebook(saved, other)
    stored = replace(vectors, sha256="cd" * 32, stored_from=vectors.sha256)
    assert load_codebook(saved, stored).metadata.vectors == "tiny"


def test_a_codebook_of_another_kind_is_refused(saved: Path, vectors: WordVectors) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content.replace(b'kind\\":\\"lmm', b'kind\\":\\"xmm', 1))
    with pytest.raises(EncoderError, match="kind 'xmm'"):
        load_codebook(saved, vectors)


def test_wrong_requests_are_refused(vectors: WordVectors) -> None:
    with pytest.raises(EncoderError, match="'vlad', expected one of"):
        fit_codebook(vectors, "vlad", seed=0)  # type: ignore[arg-type]
    larger = "request a larger sample or fewer components$"
    with pytest.raises(
        EncoderError,
        match=f"^a sample of 5 words was requested, but 2 components and an ICA of 5 dimensions "
        f"need at least 6: {larger}",
    ):
        fit_codebook(vectors, "lmm", 2, seed=0, sample=5)
    with pytest.raises(EncoderError, match=f"but 3 components need at least 3: {larger}"):
        fit_codebook(vectors, "lmm", 3, seed=0, sample=2, ica=False)
    one = replace(vectors, words=vectors.words[2:4], matrix=vectors.matrix[2:4])
    with pytest.raises(
        EncoderError, match=r"^1 of the 2 words of 'tiny' .* at least 2; .*the source$"
    ):
        fit_codebook(one, "lmm", 5, seed=0)
    fitted: Codebook = fit_codebook(vectors, "lmm", 2, seed=0, ica=False)
    with pytest.raises(EncoderError, match=r"shape \(1, 4\), expected \(words, 5\)"):
        fitted.transform(vectors.matrix[:1, :4])


@pytest.mark.parametrize("kind", ["gmm", "hglmm", "lmm"])
@pytest.mark.parametrize(("words", "components"), [(2, 2), (5, 4), (20, 19)])
def test_components_shrink_to_the_words(
    kind: MixtureKind, words: int, components: int, vectors: WordVectors, tmp_path: Path
) -> None:
    # Word 3 is zero.
    few = replace(vectors, words=vectors.words[:words], matrix=vectors.matrix[:words])
    steps: list[str] = []
    found = fit_codebook(few, kind, 30, seed=0, progress=steps.append)
    assert found.mixture.components == components
    assert found.metadata.requested == 30
    assert steps[0] == f"codebook ({kind}): {components} components, not 30, from as many words"
    # No ICA of 5 dimensions from 5 words or fewer.
    without = f"codebook ({kind}): no ICA of 5 dimensions, from {components} words"
    assert (without in steps) == (components <= DIM)
    assert (found.metadata.ica_converged is None) == (components <= DIM)
    found.save(tmp_path / "few.safetensors")
    assert load_codebook(tmp_path / "few.safetensors", few).metadata == found.metadata
    enough = fit_codebook(few, kind, 2, seed=0)
    enough.save(tmp_path / "enough.safetensors")
    assert enough.metadata.requested is None
    assert b"requested" not in (tmp_path / "enough.safetensors").read_bytes()
