"""Fisher vectors of captions: gradients of a mixture's log-likelihood at their words."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.text import EncoderError
from pipeline.text.fisher.mixture import Mixture

_NEGLIGIBLE = 1e-15  # posteriors below it vanish in float32, even after a square root
_NUMBERS_AT_ONCE = 1 << 17  # numbers per block of `power_and_l2`: 512 KiB stay in the cache
_SIGN = np.uint32(1 << 31)  # sign bit of a float32
_WORDS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class WordGradients:
    """Gradient contribution of each vocabulary word to the Fisher vector of a caption.

    A Fisher vector is a sum over words, and a word's term is the same in every caption, so it is
    computed once. Memory is 8 D bytes per kept component, at most 0.7 GB for 10,000 words, K = 30
    and D = 300.
    """

    components: int  # K
    dim: int  # D
    starts: npt.NDArray[np.int64]  # (words + 1,): rows starts[w] to starts[w + 1] are word w's
    component: npt.NDArray[np.int64]  # (rows,): component of each row
    gradients: npt.NDArray[np.float32]  # (rows, 2 D): of location, of scale; without 1 / sqrt(T)

    def fisher_vectors(
        self,
        words: npt.NDArray[np.integer],
        lengths: npt.NDArray[np.integer],
        out: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Return the Fisher vectors of captions (captions, 2 K D) float32, before `power_and_l2`.

        `words` (sum of T,) are vocabulary positions, caption by caption, with repetitions;
        `lengths` (captions,) the word counts T, where 0 yields zeros. First all gradients of
        location, component by component, then all of scale; summed in float32, within 3e-7 of the
        largest number of a row. A row depends only on its own words, bit for bit. Needs as much
        memory as the result.
        """
        if lengths.ndim != 1 or (lengths < 0).any() or lengths.sum() != len(words):
            raise EncoderError(
                f"the lengths of {len(lengths)} captions add up to {lengths.sum()} (smallest "
                f"{lengths.min(initial=0)}), expected {len(words)}, the number of words"
            )
        vocabulary = len(self.starts) - 1
        if len(words) and not 0 <= words.min() <= words.max() < vocabulary:
            raise EncoderError(
                f"words range from {words.min()} to {words.max()}, expected positions in a "
                f"vocabulary of {vocabulary}"
            )
        if out is None:
            out = np.empty((len(lengths), 2 * self.components * self.dim), dtype=np.float32)
        sums = self._sums(words, lengths)
        out.reshape(-1, 2, self.components, self.dim)[:] = sums.transpose(0, 2, 1, 3)
        return out

    def _sums(
        self, words: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.float32]:
        """Return (captions, K, 2, D), the sums of the words' gradients over sqrt(T)."""
        # Imported here: scipy is slow to import, and encoders are imported together.
        from scipy import sparse

        caption = np.repeat(np.arange(len(lengths)), lengths)
        rows_of_word = self.starts[words + 1] - self.starts[words]
        # A caption's sum gathers a variable number of rows per word: the row numbers of each word
        # are its first row plus 0, 1, ... up to its number of kept components.
        first = np.cumsum(rows_of_word) - rows_of_word
        rows = np.repeat(self.starts[words] - first, rows_of_word)
        rows += np.arange(rows_of_word.sum())
        target = np.repeat(caption, rows_of_word) * self.components + self.component[rows]
        shape = (len(lengths) * self.components, len(self.gradients))
        share = np.repeat((1 / np.sqrt(np.maximum(lengths, 1)))[caption], rows_of_word)
        summing = sparse.csr_array((share.astype(np.float32), (target, rows)), shape=shape)
        return (summing @ self.gradients).reshape(-1, self.components, 2, self.dim)


def word_gradients(mixture: Mixture, vectors: npt.NDArray[np.float32]) -> WordGradients:
    """Return the gradients of a mixture's log-likelihood at word vectors (words, D) float32.

    Klein et al. 2015; Perronnin et al. 2010 for the Gaussian part. For a word x and a component
    with prior pi and posterior gamma, in Laplacian dimensions

        gamma sign(x - m) / sqrt(pi)    and    gamma (|x - m| / s - 1) / sqrt(pi)

    where sign(0) is 1, and in Gaussian dimensions, with the standard deviation sd,

        gamma (x - mu) / (sd sqrt(pi))    and    gamma ((x - mu)^2 / sd^2 - 1) / sqrt(2 pi).

    These are the derivatives of log p(x) by m, s, mu and sd, times s / sqrt(pi), s / sqrt(pi),
    sd / sqrt(pi) and sd / sqrt(2 pi); the priors' own gradients are left out. Deviation:
    posteriors below 1e-15 count as zero (VLFeat: below 1e-6).
    """
    if vectors.ndim != 2 or vectors.shape[1] != mixture.dim:
        raise EncoderError(
            f"the word vectors have shape {vectors.shape}, expected (words, {mixture.dim}) as the "
            "mixture; use the vectors that it was fitted on"
        )
    if not np.isfinite(vectors).all():
        bad = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise EncoderError(f"word vector {bad} has NaN or infinite values")
    posteriors = mixture.posteriors(vectors)
    # Most components are dropped in hundreds of dimensions, few in 50.
    word, component = np.nonzero(posteriors > _NEGLIGIBLE)
    gradients = np.empty((len(word), 2 * mixture.dim), dtype=np.float32)
    factor = posteriors[word, component] / np.sqrt(mixture.weights[component])
    for start in range(0, len(word), _WORDS_AT_ONCE):
        rows = slice(start, start + _WORDS_AT_ONCE)
        parts = _gradients(mixture, vectors[word[rows]], component[rows])
        gradients[rows] = factor[rows, None] * parts
    starts = np.searchsorted(word, np.arange(len(vectors) + 1))
    return WordGradients(mixture.components, mixture.dim, starts, component, gradients)


def power_and_l2(vectors: npt.NDArray[np.float32]) -> None:
    """Replace numbers (captions, dim) by signed square roots, then L2-normalise each row, in place.

    Perronnin et al. 2010, section 3. Norms are then 1 within 1e-6, or 0.
    """
    step = max(1, _NUMBERS_AT_ONCE // max(vectors.shape[1], 1))
    for start in range(0, len(vectors), step):
        block = vectors[start : start + step]
        # Sign bits, which are faster than `np.copysign`.
        bits = block.view(np.uint32)
        signs = bits & _SIGN
        np.abs(block, out=block)
        # The squared roots are the absolute values, so their sum is the squared norm.
        squared_norms = block.sum(axis=1, keepdims=True)
        block /= np.where(squared_norms > 0, squared_norms, 1)
        np.sqrt(block, out=block)
        bits |= signs


def _gradients(
    mixture: Mixture, x: npt.NDArray[np.float32], component: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return (rows, 2 D), the formulas of `word_gradients` without gamma / sqrt(pi)."""
    laplace = mixture.laplace[component]
    from_median = x - mixture.medians[component]
    from_mean = (x - mixture.means[component]) / np.sqrt(mixture.variances[component])
    sign = np.where(from_median >= 0, 1.0, -1.0)
    deviation = np.abs(from_median) / mixture.scales[component] - 1
    location = np.where(laplace, sign, from_mean)
    scale = np.where(laplace, deviation, (from_mean**2 - 1) / np.sqrt(2))
    return np.concatenate((location, scale), axis=1)
