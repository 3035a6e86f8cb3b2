"""Sentence encoders and their PCA against simple alternatives, as ratios of one run.

Run as `OMP_NUM_THREADS=1 python -m bench.text [CAPTIONS]`. Captions are random: 5 to 18 of the
first 8,000 words of GloVe 50-d, frequent words more often. The 300-d vectors are synthetic. Rates
are captions per CPU second, including tokenization, of the fastest of three runs; work that is done
once for all captions is not counted on either side. Fails if an encoder and its alternative differ.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gensim.models import KeyedVectors
from skimage.feature import fisher_vector
from sklearn.decomposition import IncrementalPCA
from sklearn.mixture import GaussianMixture

from bench.record import recorded
from pipeline.store.hashing import recipe_hash
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.fisher_vector import FisherVector
from pipeline.text.encoders.mean import Mean
from pipeline.text.encoders.pca import Pca
from pipeline.text.fisher.codebook import Codebook, fit_codebook
from pipeline.text.pca.components import PcaMetadata, PrincipalComponents, fit_pca
from pipeline.text.pca.covariance import Covariance
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors import WordVectors, load_vectors

WORDS, SLOW = 8000, 300  # words in all; captions for the slow alternatives
TOKENIZER = TOKENIZERS["treebank"]
Rows = npt.NDArray[Any]
Encode = Callable[[Sequence[str]], Rows]


@recorded
def main() -> None:
    """Print the table."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    glove = load_vectors("glove-6b-50d")
    some = [row for row, word in enumerate(glove.words) if word.isalpha()][:WORDS]
    words = tuple(glove.words[row] for row in some)
    vectors = replace(glove, words=words, matrix=glove.matrix[some])
    texts = captions(words, number)
    print(f"{'':32} {'captions/s':>10}   {'alternative':42} {'captions/s':>10} {'ratio':>6}")
    mean = Mean(vectors)
    compare("mean, 50-d", mean, texts, "a loop with numpy's mean", loop_of_means(vectors))
    compare("mean, 50-d", mean, texts, "gensim's get_mean_vector", gensim_means(vectors))
    rng = np.random.default_rng(1)
    laplace = rng.laplace(size=(WORDS, 300)) @ rng.normal(size=(300, 300)) / 17
    wide = WordVectors("synthetic", words, laplace.astype(np.float32), "0" * 64)
    for of in (vectors, wide):
        gmm, hglmm = (fit_codebook(of, kind, seed=0) for kind in ("gmm", "hglmm"))
        what = "scikit-image's fisher_vector"
        encoder = FisherVector((gmm,), of, TOKENIZER)
        compare(f"fv-gmm, {of.dim}-d", encoder, texts, what, loop_of_gaussians(gmm, of))
        encoder = FisherVector((hglmm,), of, TOKENIZER)
        what = "a loop over captions, numpy"
        compare(f"fv-hglmm, {of.dim}-d", encoder, texts, what, loop_of_hybrids(hglmm, of))
    fits(vectors, texts)
    products(vectors, texts)


def fits(vectors: WordVectors, texts: Sequence[str]) -> None:
    """Print the line of a PCA of a size that scikit-learn can fit: 2,250 numbers to 750."""
    some = replace(vectors, matrix=np.ascontiguousarray(vectors.matrix[:, :45]))
    encoder = FisherVector((fit_codebook(some, "hglmm", 25, seed=0),), some, TOKENIZER)
    with tempfile.TemporaryDirectory() as work:
        ours, _ = timed(lambda: fit_pca(encoder, texts, 750, Path(work)))
    start = time.process_time()
    IncrementalPCA(750, batch_size=1500).fit(encoder.encode(texts))
    peer = time.process_time() - start
    count = len(texts)
    line("PCA fit, 2,250 to 750", count / ours, "IncrementalPCA, batches of 1,500", count / peer)


def products(vectors: WordVectors, texts: Sequence[str]) -> None:
    """Print the lines of a PCA against its unavoidable part, the matrix products."""
    encoder = FisherVector((fit_codebook(vectors, "hglmm", 60, seed=0),), vectors, TOKENIZER)
    width, dim, chunk = encoder.dim, encoder.dim // 3, texts[:2048]
    sums = Covariance(width)
    seconds, _ = timed(lambda: sums.add(encoder.encode(chunk)))
    rows = encoder.encode(chunk)
    alone, _ = timed(lambda: rows.T @ rows)
    name = f"FV and covariance, {width}-d"
    line(name, len(chunk) / seconds, "its product alone", len(chunk) / alone)
    components = np.random.default_rng(2).normal(size=(width, dim)).astype(np.float32)
    fitted_to = recipe_hash(encoder.recipe(), encoder.weights[1])
    metadata = PcaMetadata(encoder.name, fitted_to, 0, "", "cpu", 1.0, "")
    basis = PrincipalComponents(metadata, rows.mean(axis=0), components, np.ones(dim))
    rows -= basis.mean
    compare(
        f"FV and PCA to {dim}-d",
        Pca(encoder, basis),
        chunk,
        "its product alone",
        lambda given: rows[: len(given)] @ components,
        slow=len(chunk),
    )


def compare(
    name: str,
    encoder: CaptionEncoder,
    texts: Sequence[str],
    what: str,
    alternative: Encode,
    slow: int = SLOW,
) -> None:
    """Time an encoder and an alternative, check that they agree, and print one line."""
    encoder.encode(texts[:1])
    ours, rows = timed(lambda: encoder.encode(texts))
    peer, expected = timed(lambda: alternative(texts[:slow]))
    if not np.allclose(rows[:slow], expected, rtol=1e-3, atol=1e-4):
        raise SystemExit(f"{name} and {what} differ")
    line(name, len(texts) / ours, what, len(expected) / peer)


def line(name: str, rate: float, what: str, other: float) -> None:
    """Print one line of the table, with rates in captions per CPU second."""
    print(f"{name:32} {rate:10,.0f}   {what:42} {other:10,.0f} {rate / other:6.2f}", flush=True)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of the fastest of three runs, and the last result."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def captions(words: Sequence[str], number: int) -> list[str]:
    """Return random captions; word r has a probability proportional to 1 / (r + 10)."""
    rng = np.random.default_rng(0)
    frequency = 1 / (np.arange(len(words)) + 10)
    lengths = rng.integers(5, 19, number)
    drawn = rng.choice(len(words), lengths.sum(), p=frequency / frequency.sum())
    ends = np.cumsum(lengths)
    return [
        " ".join(words[word] for word in drawn[end - length : end])
        for end, length in zip(ends, lengths, strict=True)
    ]


def loop_of_means(vectors: WordVectors) -> Encode:
    """Return means computed caption by caption, in a plain loop."""
    index, matrix = vectors.index, vectors.matrix

    def one(text: str) -> Rows:
        return np.mean([matrix[index[t]] for t in TOKENIZER.tokenize(text) if t in index], axis=0)

    return lambda texts: np.array([one(text) for text in texts])


def gensim_means(vectors: WordVectors) -> Encode:
    """Return gensim's means, without its default normalisation of word vectors."""
    keyed = KeyedVectors(vectors.dim)
    keyed.add_vectors(list(vectors.words), vectors.matrix)
    return lambda texts: np.array(
        [keyed.get_mean_vector(TOKENIZER.tokenize(text), pre_normalize=False) for text in texts]
    )


def loop_of_gaussians(codebook: Codebook, vectors: WordVectors) -> Encode:
    """Return Gaussian Fisher vectors by scikit-image, without its gradients of the weights.

    Its gradients of the scales have the opposite sign.
    """
    mixture = codebook.mixture
    model = GaussianMixture(mixture.components, covariance_type="diag")
    model.weights_, model.means_ = mixture.weights, mixture.means
    model.covariances_ = mixture.variances
    model.precisions_cholesky_ = 1 / np.sqrt(mixture.variances)

    def one(x: Rows) -> Rows:
        location, scale = np.split(fisher_vector(x, model)[mixture.components :], 2)
        plain = np.concatenate((location, -scale))
        return rooted(plain)

    return caption_by_caption(codebook, vectors, one)


def loop_of_hybrids(codebook: Codebook, vectors: WordVectors) -> Encode:
    """Return hybrid Fisher vectors, caption by caption, with (words, K, D) numbers in memory."""
    mixture = codebook.mixture
    deviations = np.sqrt(mixture.variances)

    def one(x: Rows) -> Rows:
        q = mixture.posteriors(x)
        from_median = x[:, None] - mixture.medians
        from_mean = (x[:, None] - mixture.means) / deviations
        sign = np.where(from_median >= 0, 1, -1)
        executor = np.abs(from_median) / mixture.scales - 1
        location = np.where(mixture.laplace, sign, from_mean)
        scale = np.where(mixture.laplace, executor, (from_mean**2 - 1) / np.sqrt(2))
        sums = [np.einsum("nk,nkd->kd", q, part) for part in (location, scale)]
        return improved(sums[0], sums[1], mixture.weights)

    return caption_by_caption(codebook, vectors, one)


def caption_by_caption(
    codebook: Codebook, vectors: WordVectors, one: Callable[[Rows], Rows]
) -> Encode:
    """Apply `one` to the transformed vectors (words, D) of the words of each caption."""
    index, known = vectors.index, codebook.transform(vectors.matrix).astype(np.float64)

    def encode(texts: Sequence[str]) -> Rows:
        found = ([index[t] for t in TOKENIZER.tokenize(text) if t in index] for text in texts)
        return np.array([one(known[rows]) for rows in found])

    return encode


def improved(location: Rows, scale: Rows, weights: Rows) -> Rows:
    """Return gradients (K, D) divided by the root of the priors, signed square root, norm 1."""
    root = np.sqrt(weights)[:, None]
    return rooted(np.concatenate(((location / root).ravel(), (scale / root).ravel())))


def rooted(plain: Rows) -> Rows:
    """Return the element-wise signed square root, scaled to norm 1."""
    roots = np.sign(plain) * np.sqrt(np.abs(plain))
    return roots / np.linalg.norm(roots)


if __name__ == "__main__":
    main()
