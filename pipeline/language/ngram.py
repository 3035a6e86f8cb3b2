"""An n-gram language model with interpolated modified Kneser-Ney smoothing.

Chen & Goodman 1999, section 4, with the counts of Heafield et al. 2013: below the highest order, an
n-gram's count is the number of distinct words before it or, if it starts with `START`, its number
of occurrences; unigrams are interpolated with the uniform distribution over all words.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save

from pipeline.language import LanguageError
from pipeline.store.files import appearing_whole
from pipeline.store.own_files import reading
from pipeline.text.encoders.token_ids import END, PADDING, START

Ids = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts of an order with too few n-grams of count one to four to estimate them."""

_NONE = -1  # padding before the sentence


@dataclass(frozen=True, eq=False)
class NGramModel:
    """Probabilities of n-grams, and back-off weights of contexts, as natural logarithms."""

    vocab_size: int
    # Ascending n-grams of each order from 2 on: ids as digits of one number, in base vocab_size.
    keys: tuple[Ids, ...]
    log_probabilities: tuple[Doubles, ...]  # of each order from 1 on; of order 1 by token id
    log_backoffs: tuple[Doubles, ...]  # of the same n-grams as contexts, except the last order

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return len(self.log_probabilities)

    def sentence_log_probabilities(self, sentences: Ids) -> Doubles:
        """Return log P(word) at all positions, (sentences, length) float64; 0 for padding.

        Sentences are token ids with the end mark, without `START`, `PADDING` at the end.
        """
        number, length = sentences.shape
        begun = np.full((number, self.order - 1), _NONE, np.int64)
        begun[:, -1:] = START
        windows = np.lib.stride_tricks.sliding_window_view(
            np.concatenate([begun, sentences], axis=1), self.order, axis=1
        )[:, :length]
        log_p = self._of_ngrams(windows.reshape(-1, self.order)).reshape(number, length)
        return np.where(sentences == PADDING, 0.0, log_p)

    def save(self, path: Path) -> None:
        """Write the model atomically."""
        tensors: dict[str, npt.NDArray[Any]] = {
            f"keys.{n}": keys for n, keys in enumerate(self.keys, 2)
        }
        tensors |= {f"log_probability.{n}": p for n, p in enumerate(self.log_probabilities, 1)}
        tensors |= {f"log_backoff.{n}": b for n, b in enumerate(self.log_backoffs, 1)}
        with appearing_whole(path) as part:
            part.write_bytes(save(tensors, {"vocab_size": str(self.vocab_size)}))

    @classmethod
    def load(cls, path: Path) -> "NGramModel":
        """Load a model."""
        remedy = "train the language model again"
        with (
            reading(path, "an n-gram model", remedy, LanguageError),
            safe_open(path, "np") as file,
        ):
            vocab_size = int(file.metadata()["vocab_size"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        of = [[t for n, t in sorted(tensors.items()) if n.startswith(kind)] for kind in _KINDS]
        return cls(vocab_size, *(tuple(tensors) for tensors in of))

    def _of_ngrams(self, ngrams: Ids) -> Doubles:
        """Return log P(last word) of (n, order) ids, padded with `_NONE`."""
        log_p = self.log_probabilities[0][ngrams[:, -1]]
        # From short to long: `log_p` is that of the order below, to which unseen n-grams back off.
        for order in range(2, self.order + 1):
            last = ngrams[:, self.order - order :]
            real = (last != _NONE).all(axis=1)  # not before the sentence
            key = _keys(last, self.vocab_size)
            row, seen = _find(self.keys[order - 2], key)
            context = key // self.vocab_size
            if order == 2:
                backoff = self.log_backoffs[0][np.where(real, context, 0)]
            else:
                # An unseen context has no mass of its own: its weight is 1.
                context_row, seen_context = _find(self.keys[order - 3], context)
                backoff = np.where(seen_context, self.log_backoffs[order - 2][context_row], 0.0)
            log_p_here = np.where(seen, self.log_probabilities[order - 1][row], backoff + log_p)
            log_p = np.where(real, log_p_here, log_p)
        return log_p


_KINDS = ("keys.", "log_probability.", "log_backoff.")


def fit_ngrams(sentences: Ids, vocab_size: int, order: int = 3) -> NGramModel:
    """Fit an n-gram model on sentences (n, length) of token ids.

    Sentences have `END`, no `START`, and `PADDING` at the end. All ids but `PADDING` and `START`
    have a probability.
    """
    require_words(sentences)
    if vocab_size**order >= 1 << 63:  # n-grams are numbers of int64, which sort fast
        raise LanguageError(
            f"a vocabulary of {vocab_size} words is too large for n-grams of {order} words; use a "
            "smaller vocabulary or a lower order"
        )
    begun = np.concatenate([np.full((len(sentences), 1), START), sentences], axis=1)
    counted = [_occurrences(begun, n, vocab_size) for n in range(1, order + 1)]
    for n in range(order - 1):
        counted[n] = _adjusted(counted[n], counted[n + 1][0], n + 1, vocab_size)
    impossible = np.isin(np.arange(vocab_size), (PADDING, START))
    uniform = np.where(impossible, 0.0, 1 / (vocab_size - 2))

    keys, counts = counted[0]
    share, left = _discounted(counts, np.zeros(len(keys), np.int64))
    probabilities = left[0] * uniform
    probabilities[keys] += share
    every = [probabilities]
    backoffs = []
    for n in range(1, order):
        keys, counts = counted[n]
        before = keys // vocab_size
        contexts, group = np.unique(before, return_inverse=True)
        share, left = _discounted(counts, group)
        # Every n-gram without its first word, and every context, is one of the order below: both
        # were counted in the same windows.
        shorter = keys % vocab_size**n
        lower = every[-1][shorter if n == 1 else _find(counted[n - 1][0], shorter)[0]]
        every.append(share + left[group] * lower)
        backoff = np.ones(vocab_size if n == 1 else len(counted[n - 1][0]))
        backoff[contexts if n == 1 else _find(counted[n - 1][0], contexts)[0]] = left
        backoffs.append(np.log(backoff))
    with np.errstate(divide="ignore"):
        logarithms = tuple(np.log(p) for p in every)
    return NGramModel(vocab_size, tuple(k for k, _ in counted[1:]), logarithms, tuple(backoffs))


def require_words(sentences: npt.NDArray[np.generic]) -> None:
    """Check that the sentences of `fit_ngrams` contain a word."""
    if np.isin(sentences, (START, END, PADDING)).all():
        raise LanguageError(
            f"none of {len(sentences)} sentences has a word, so there are no n-grams to count; "
            "use captions with words, or another tokenizer"
        )


def discounts(counts: Ids) -> tuple[float, float, float]:
    """Return the discounts of n-grams with count 1, 2, and 3 or more (Chen & Goodman 1999).

    `FALLBACK` if a denominator of the equations is zero, or a discount is not positive.
    """
    n = [int((counts == k).sum()) for k in range(1, 5)]
    if not all(n):
        return FALLBACK
    share = n[0] / (n[0] + 2 * n[1])
    estimates = tuple(k - (k + 1) * share * n[k] / n[k - 1] for k in (1, 2, 3))
    return estimates if min(estimates) > 0 else FALLBACK  # type: ignore[return-value]


def _occurrences(begun: Ids, order: int, vocab_size: int) -> tuple[Ids, Ids]:
    """Return the ascending n-grams of sentences that start with `START`, and their counts."""
    windows = np.lib.stride_tricks.sliding_window_view(begun, order, axis=1)
    ngrams = windows.reshape(-1, order)
    real = (ngrams != PADDING).all(axis=1)
    if order == 1:
        real &= ngrams[:, 0] != START
    return np.unique(_keys(ngrams[real], vocab_size), return_counts=True)


def _adjusted(
    counted: tuple[Ids, Ids], longer: Ids, order: int, vocab_size: int
) -> tuple[Ids, Ids]:
    """Return n-grams with the number of distinct words before them; after `START`, unchanged."""
    keys, counts = counted
    followed, distinct = np.unique(longer % vocab_size**order, return_counts=True)
    row, preceded = _find(followed, keys)
    first = keys // vocab_size ** (order - 1)
    # Nothing precedes `START`: such n-grams keep their number of occurrences.
    return keys, np.where((first == START) | ~preceded, counts, distinct[row])


def _discounted(counts: Ids, group: Ids) -> tuple[Doubles, Doubles]:
    """Return the discounted share of each n-gram after its context, and the rest per context."""
    removed = np.array([0.0, *discounts(counts)])[np.minimum(counts, 3)]
    totals = np.bincount(group, counts)
    # The rest is what the discounts remove: the order below distributes it, so all sums are 1.
    return (counts - removed) / totals[group], np.bincount(group, removed) / totals


def _keys(ngrams: Ids, vocab_size: int) -> Ids:
    """Return the ids (n, order) as the digits of one number each."""
    key = ngrams[:, 0].astype(np.int64)
    for column in ngrams.T[1:]:
        key = key * vocab_size + column
    return key


def _find(keys: Ids, queries: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Return the row of each query among ascending keys, and whether it is one of them."""
    rows = np.searchsorted(keys, queries).clip(0, max(0, len(keys) - 1))
    return rows, keys[rows] == queries if len(keys) else np.zeros(len(queries), bool)
