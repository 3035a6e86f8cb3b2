"""Where retrieval works and where it fails: recall by a sentence's length and by its words."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.retrieval.recall import measures

_WORD = re.compile(r"\w+(?:['’]\w+)*")


@dataclass(frozen=True)
class LengthBin:
    """The queries whose number of words is `first` to `last`.

    Attributes
    ----------
    words : mean number of words of these queries.
    queries : how many there are.
    r10 : R@10, per cent.
    median_rank : floor of the median rank, from 1, as everywhere.
    """

    first: int
    last: int
    words: float
    queries: int
    r10: float
    median_rank: float

    @property
    def label(self) -> str:
        """The bin's name, such as "7" or "12–15"."""
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True)
class WordRow:
    """The queries in which a word occurs: how many, their R@10 (per cent) and median rank."""

    word: str
    queries: int
    r10: float
    median_rank: float


def words_of(text: str) -> list[str]:
    """Return the words of a sentence in lower case: runs of letters and digits.

    An apostrophe within a word is part of it. The encoders have rules of their own; this one is
    the same for all, so that their lengths compare.
    """
    return _WORD.findall(text.lower())


def by_length(texts: Sequence[str], ranks: Sequence[int], least: int) -> tuple[LengthBin, ...]:
    """Part the queries by their number of words.

    Neighbouring lengths are joined until a bin holds `least` queries; what remains at the end
    joins the bin before it.

    Parameters
    ----------
    texts, ranks : one a query; ranks from 0.
    least : at least 1.
    """
    of_length: dict[int, list[int]] = defaultdict(list)
    for text, rank in zip(texts, ranks, strict=True):
        of_length[len(words_of(text))].append(int(rank))
    bins: list[list[int]] = []
    for length in sorted(of_length):
        if bins and _held(bins[-1], of_length) < least:
            bins[-1].append(length)
        else:
            bins.append([length])
    if len(bins) > 1 and _held(bins[-1], of_length) < least:
        rest = bins.pop()
        bins[-1] += rest
    return tuple(_bin(lengths, of_length) for lengths in bins)


def by_word(texts: Sequence[str], ranks: Sequence[int], least: int) -> tuple[WordRow, ...]:
    """Return a row for each word that occurs in `least` queries or more, best R@10 first.

    A word counts once a query. Equal recalls stand by median rank, then in the order of the words.
    """
    of_word: dict[str, list[int]] = defaultdict(list)
    for text, rank in zip(texts, ranks, strict=True):
        for word in set(words_of(text)):
            of_word[word].append(int(rank))
    rows = [
        WordRow(word, len(found), *_measured(found))
        for word, found in of_word.items()
        if len(found) >= least
    ]
    return tuple(sorted(rows, key=lambda row: (-row.r10, row.median_rank, row.word)))


def chosen(ids: Sequence[str], number: int, seed: int) -> list[str]:
    """Return `number` of the ids, or all if there are fewer: those first by SHA-256 of seed and id.

    The order they are given in does not matter, so all experiments of a split show the same.
    """
    return sorted(ids, key=lambda one: hashlib.sha256(f"{seed}:{one}".encode()).digest())[:number]


def worst(
    ids: Sequence[str], ranks: Sequence[int], groups: Sequence[str], number: int
) -> list[str]:
    """Return the ids of greatest rank, at most one of each group; equal ranks by id.

    Parameters
    ----------
    ids, ranks : one a query.
    groups : for each query what it is about, such as its image.
    number : how many are wanted.
    """
    order = sorted(zip(ids, ranks, groups, strict=True), key=lambda one: (-int(one[1]), one[0]))
    first: dict[str, str] = {}
    for one, _, group in order:
        first.setdefault(group, one)
    return list(first.values())[:number]


def _held(lengths: Sequence[int], of_length: dict[int, list[int]]) -> int:
    return sum(len(of_length[length]) for length in lengths)


def _bin(lengths: Sequence[int], of_length: dict[int, list[int]]) -> LengthBin:
    ranks = [rank for length in lengths for rank in of_length[length]]
    words = sum(length * len(of_length[length]) for length in lengths) / len(ranks)
    return LengthBin(lengths[0], lengths[-1], words, len(ranks), *_measured(ranks))


def _measured(ranks: Sequence[int]) -> tuple[float, float]:
    """Return R@10 and the median rank of ranks from 0."""
    values = measures(np.array(ranks, np.int64))
    return values["r10"], values["median_rank"]
