"""Principal components out of core against a full decomposition, and interrupted fits."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.decomposition import PCA

from pipeline.store.shards.format import ShardError
from pipeline.text import EncoderError
from pipeline.text.encoders.base import CaptionEncoder, VocabularyReport, report_on
from pipeline.text.encoders.pca import Pca
from pipeline.text.pca import components as pca_fit
from pipeline.text.pca import covariance, eigenvectors
from pipeline.text.pca.components import (
    PrincipalComponents,
    fit_disk,
    fit_memory,
    fit_pca,
    load_pca,
)


@dataclass(eq=False)
class Table:
    """An encoder whose texts are row numbers, round and round; it can be made to fail at one."""

    rows: npt.NDArray[np.float32]
    sha256: str = "0" * 64
    fails_at: str = ""
    name: str = "table"
    trained_on: tuple[str, ...] = ()

    @property
    def dim(self) -> int:
        return int(self.rows.shape[1])

    @property
    def weights(self) -> tuple[str, str]:
        return "table", self.sha256

    @property
    def memory(self) -> int:
        return self.rows.nbytes

    def recipe(self) -> dict[str, Any]:
        return {"name": self.name, "dim": self.dim}

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if self.fails_at in texts:
            raise KeyboardInterrupt
        return self.rows[[int(text) % len(self.rows) for text in texts]]

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        return {self.name: report_on([[text] for text in texts], {"0"})}


def table(rows: int = 300, width: int = 40) -> Table:
    """Rows far off the origin whose variances fall by a factor of a thousand."""
    rng = np.random.default_rng(0)
    executor = np.geomspace(1, 1e-3, width) ** 0.5
    turned = np.linalg.qr(rng.normal(size=(width, width)))[0]
    values = rng.normal(size=(rows, width)) * executor @ turned + 5
    return Table(values.astype(np.float32))


def texts_of(encoder: Table) -> list[str]:
    return [str(row) for row in range(len(encoder.rows))]


def fitted(
    encoder: CaptionEncoder, texts: Sequence[str], dim: int, work: Path
) -> PrincipalComponents:
    return fit_pca(encoder, texts, dim, work)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pca_fit, "_CHUNK", 64)
    monkeypatch.setattr(covariance, "_PANEL", 16)


@pytest.mark.parametrize(("chunk", "panel"), [(1, 7), (37, 16), (300, 40), (64, 1024)])
def test_agrees_with_a_full_decomposition_in_float64(
    chunk: int, panel: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pca_fit, "_CHUNK", chunk)
    monkeypatch.setattr(covariance, "_PANEL", panel)
    monkeypatch.setattr(eigenvectors, "_COLUMNS", 3)
    encoder = table()
    found = fitted(encoder, texts_of(encoder), 13, tmp_path)
    oracle = PCA(svd_solver="full").fit(encoder.rows.astype(np.float64))
    np.testing.assert_allclose(found.eigenvalues, oracle.explained_variance_[:13], rtol=1e-5)
    np.testing.assert_allclose(found.mean, oracle.mean_, rtol=1e-6)
    np.testing.assert_allclose(found.explained, oracle.explained_variance_ratio_[:13].sum())
    axes = oracle.components_[:13].T
    largest = np.abs(axes).argmax(axis=0)
    axes *= np.sign(axes[largest, range(13)])
    np.testing.assert_allclose(found.components, axes, atol=1e-5)
    assert (found.components[largest, range(13)] > 0).all()
    rows = Pca(encoder, found).encode(texts_of(encoder))
    expected = (encoder.rows.astype(np.float64) - oracle.mean_) @ axes
    np.testing.assert_allclose(rows, expected, atol=1e-4)
    np.testing.assert_allclose(rows.var(axis=0, ddof=1), found.eigenvalues, rtol=1e-4)


def test_the_largest_components_of_all_are_all(tmp_path: Path) -> None:
    encoder = table(60, 5)
    found = fitted(encoder, texts_of(encoder), 5, tmp_path)
    assert found.explained == pytest.approx(1)
    np.testing.assert_allclose(found.components.T @ found.components, np.eye(5), atol=1e-6)
    largest = fitted(encoder, texts_of(encoder), 1, tmp_path)
    assert largest.eigenvalues[0] == pytest.approx(found.eigenvalues[0])
    np.testing.assert_allclose(largest.components, found.components[:, :1], atol=1e-6)


def test_rows_of_one_number(tmp_path: Path) -> None:
    encoder = Table(np.array([[1], [2], [6]], dtype=np.float32))
    found = fitted(encoder, texts_of(encoder), 1, tmp_path)
    assert (found.mean, found.components, found.eigenvalues) == (3, 1, 7)
    assert Pca(encoder, found).encode(["2", "0"]).tolist() == [[3], [-2]]


def test_constant_rows_have_no_variance(tmp_path: Path) -> None:
    encoder = Table(np.full((20, 7), 0.1, dtype=np.float32))
    found = fitted(encoder, texts_of(encoder), 3, tmp_path)
    assert found.eigenvalues.tolist() == [0, 0, 0]
    assert found.explained == 0
    assert not Pca(encoder, found).encode(["3", "4"]).any()


@pytest.mark.parametrize("failing", ["0", "64", "100", "299"])
def test_an_interrupted_fit_goes_on_to_the_same_bytes(failing: str, tmp_path: Path) -> None:
    encoder = table()
    texts = texts_of(encoder)
    whole = fitted(encoder, texts, 9, tmp_path / "whole")
    whole.save(tmp_path / "whole.safetensors")
    seen: list[tuple[int, int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        fit_pca(
            replace(encoder, fails_at=failing), texts, 9, tmp_path / "work", checkpoint_seconds=0
        )
    found = fit_pca(
        encoder, texts, 9, tmp_path / "work", progress=lambda *counts: seen.append(counts)
    )
    found.save(tmp_path / "continued.safetensors")
    names = ("whole.safetensors", "continued.safetensors")
    first, second = ((tmp_path / name).read_bytes() for name in names)
    assert first == second
    assert seen[0] == (int(failing) // 64 * 64, 300, 0)
    assert seen[-1] == (300, 300, 0)
    assert {path.name for path in (tmp_path / "work").iterdir()} == {".gitignore", "fit.lock"}


def test_products_of_torch_agree(tmp_path: Path) -> None:
    encoder = table()
    texts = texts_of(encoder)
    expected = fitted(encoder, texts, 9, tmp_path)
    # torch's name for the same device: the way that "cuda" goes, on any machine.
    found = fit_pca(encoder, texts, 9, tmp_path, device="cpu:0")
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-5)
    np.testing.assert_allclose(found.components, expected.components, atol=1e-4)
    assert found.metadata.device == "cpu:0"


def test_two_fits_in_one_folder_and_what_a_killed_one_left(tmp_path: Path) -> None:
    encoder = table()
    texts = texts_of(encoder)

    def again(done: int, total: int, failed: int) -> None:
        with pytest.raises(ShardError, match="another process is writing"):
            fitted(encoder, texts, 9, tmp_path)

    fit_pca(encoder, texts, 9, tmp_path, progress=again)
    with pytest.raises(KeyboardInterrupt):
        fit_pca(replace(encoder, fails_at="200"), texts, 9, tmp_path, checkpoint_seconds=0)
    (work_file,) = tmp_path.glob("covariance-*")
    half = work_file.with_name(f"{work_file.name}.0123456789ab.part")
    half.write_bytes(work_file.read_bytes()[:1000])
    fitted(encoder, texts, 9, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".gitignore", "fit.lock"}


def test_unfinished_sums_are_continued_for_these_captions_and_this_encoder_only(
    tmp_path: Path,
) -> None:
    encoder = table()
    texts = texts_of(encoder)
    with pytest.raises(KeyboardInterrupt):
        fit_pca(replace(encoder, fails_at="200"), texts, 9, tmp_path, checkpoint_seconds=0)
    (work_file,) = tmp_path.glob("covariance-*")
    starts: list[int] = []
    others = [(replace(encoder, sha256="1" * 64), texts), (encoder, texts[::-1])]
    for other, in_order in others:
        seen: list[int] = []
        fit_pca(
            other,
            in_order,
            9,
            tmp_path,
            progress=lambda done, *_: seen.append(done),  # noqa: B023
        )
        starts.append(seen[0])
    assert starts == [0, 0]
    assert list(tmp_path.glob("covariance-*")) == [work_file]
    content = work_file.read_bytes()
    flipped = content[:500] + bytes([content[500] ^ 1]) + content[501:]
    for damaged in (flipped, content[:-1], content + b"x", b"", content[: content.index(b"\n")]):
        work_file.write_bytes(damaged)
        with pytest.raises(EncoderError, match=r"is damaged .*delete it to start again"):
            fitted(encoder, texts, 9, tmp_path)
    work_file.write_bytes(content)
    # The sums serve any number of components.
    seen = []
    fit_pca(encoder, texts, 4, tmp_path, progress=lambda done, *_: seen.append(done))
    assert seen[0] == 192


@pytest.mark.parametrize("dim", [1, 9])
def test_a_row_does_not_depend_on_its_company(dim: int, tmp_path: Path) -> None:
    encoder = table(600, 129)
    texts = texts_of(encoder)
    found = Pca(encoder, fitted(encoder, texts, dim, tmp_path))
    together = found.encode(texts)
    assert together.dtype == np.float32
    assert np.array_equal(found.encode(texts[::-1])[::-1], together)
    assert np.array_equal(found.encode(texts[100:400]), together[100:400])
    alone = np.concatenate([found.encode([text]) for text in texts[:300:13]])
    assert np.array_equal(alone, together[:300:13])
    assert found.encode([]).shape == (0, dim)


def test_the_file_gives_all_back(tmp_path: Path) -> None:
    encoder = table()
    found = fitted(encoder, texts_of(encoder), 9, tmp_path)
    path = tmp_path / "pca.safetensors"
    found.save(path)
    loaded = load_pca(path, encoder)
    assert loaded.metadata == found.metadata
    assert loaded.sha256 == found.sha256
    assert np.array_equal(loaded.eigenvalues, found.eigenvalues)
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    other = replace(encoder, name="other")
    with pytest.raises(EncoderError, match=r"fitted on 'table' .*not on 'other'"):
        load_pca(path, other)
    with pytest.raises(EncoderError, match=r"fitted on 'table' .*not on 'table'"):
        Pca(replace(encoder, sha256="1" * 64), found)


def test_what_cannot_be_fitted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = table(8, 40)
    texts = texts_of(encoder)
    for number in (0, 1):
        with pytest.raises(EncoderError, match=f"{number} training captions? found; .* at least 2"):
            fitted(encoder, texts[:number], 8, tmp_path)
    with pytest.raises(EncoderError, match="0 principal components were requested"):
        fitted(encoder, texts, 0, tmp_path)
    bad = replace(encoder, rows=np.where(np.eye(8, 40), np.nan, encoder.rows))
    with pytest.raises(EncoderError, match=r"rows 0 to 7 \(from 0\) have NaN"):
        fitted(bad, texts, 3, tmp_path)
    monkeypatch.setattr(pca_fit, "fit_disk", lambda width: 1 << 60)
    with pytest.raises(EncoderError, match="free some space"):
        fitted(encoder, texts, 3, tmp_path)


@pytest.mark.parametrize(
    ("captions", "width", "possible"), [(2, 40, 1), (8, 40, 7), (300, 40, 40), (1001, 1000, 1000)]
)
def test_components_shrink_to_captions_and_numbers(
    captions: int, width: int, possible: int, tmp_path: Path
) -> None:
    encoder = table(captions, width)
    texts = texts_of(encoder)
    found = fitted(encoder, texts, 1000, tmp_path)
    requested = 1000 if possible < 1000 else None
    assert (found.dim, found.metadata.requested) == (possible, requested)
    assert Pca(encoder, found).recipe().get("requested") == requested
    found.save(tmp_path / "shrunk.safetensors")
    read = load_pca(tmp_path / "shrunk.safetensors", encoder)
    assert (read.metadata, read.sha256) == (found.metadata, found.sha256)
    # As many asked for as there are: the same components, and nothing is said of another number.
    exact = fitted(encoder, texts, possible, tmp_path)
    assert (exact.sha256, exact.metadata.requested) == (found.sha256, None)
    exact.save(tmp_path / "exact.safetensors")
    stated = (
        (tmp_path / "exact.safetensors").read_bytes(),
        (tmp_path / "shrunk.safetensors").read_bytes(),
    )
    assert [b"requested" in content for content in stated] == [False, requested is not None]


def test_memory_and_disk_are_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covariance, "_PANEL", 128)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(64, 600)).astype(np.float32)
    encoder = Table(rows)
    peaks = []
    for number in (500, 2000):
        texts = [str(row) for row in range(number)]
        tracemalloc.start()
        fitted(encoder, texts, 200, tmp_path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert 0.5 * fit_memory(600, 200) < peaks[-1] < 1.05 * fit_memory(600, 200)
    assert peaks[1] < 1.05 * peaks[0]
    with pytest.raises(KeyboardInterrupt):
        fit_pca(Table(rows, fails_at="100"), texts, 3, tmp_path, checkpoint_seconds=0)
    (work_file,) = tmp_path.glob("covariance-*")
    assert 2 * work_file.stat().st_size == pytest.approx(fit_disk(600), abs=1000)
