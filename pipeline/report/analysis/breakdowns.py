"""What sentences say: recall by their length and words, and words that tell images apart."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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


def telling_words(
    captions: Mapping[str, Sequence[str]], least: int, number: int
) -> tuple[str, ...]:
    """Return the words on which the captions of an image agree most, and those of others do not.

    The agreement is Fleiss' kappa of "the caption has the word" (Fleiss 1971, for one
    category), an image's captions being its raters: (p' - p) / (1 - p),
    where p is the share of captions that have the word, and p' that of the other captions of an
    image of which one has it. Nouns such as "dog" are near 1; "a" and "with" are near 0 however
    frequent. No list of stop words and no tagger is needed. Of words that differ by a final s or
    es, such as "dog" and "dogs", that of more captions stands for both.

    Parameters
    ----------
    captions : image id to its captions; images of one caption say nothing.
    least : images, at least, one of whose captions has the word.
    number : how many are wanted, best first; equal agreements in the order of the words.
    """
    have: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    agreeing: Counter[str] = Counter()
    images: Counter[str] = Counter()
    several = [texts for texts in captions.values() if len(texts) > 1]
    for texts in several:
        counts = Counter(word for text in texts for word in set(words_of(text)))
        images.update(counts.keys())
        for word, count in counts.items():
            have[word] += count
            pairs[word] += count * (len(texts) - 1)
            agreeing[word] += count * (count - 1)
    everything = sum(map(len, several))
    kappas = {}
    for word, count in have.items():
        share = count / everything
        if images[word] >= least and share < 1:
            kappas[word] = (agreeing[word] / pairs[word] - share) / (1 - share)
    kept: set[str] = set()
    for word in sorted(kappas, key=lambda word: (-have[word], word)):
        shorter = [word.removesuffix(end) for end in ("s", "es") if word.endswith(end)]
        if kept.isdisjoint((word + "s", word + "es", *shorter)):
            kept.add(word)
    return tuple(sorted(kept, key=lambda word: (-kappas[word], word))[:number])


def images_of(
    words: Sequence[str], captions: Mapping[str, Sequence[str]], number: int
) -> dict[str, tuple[str, ...]]:
    """Return for each word the images most of whose captions have it, an image for one word only.

    Equal shares stand by id; no image is without the word, so that there may be fewer.
    """
    taken: set[str] = set()
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        shares = {
            image: sum(word in words_of(text) for text in texts) / len(texts)
            for image, texts in captions.items()
            if image not in taken and texts
        }
        most = sorted((i for i in shares if shares[i]), key=lambda i: (-shares[i], i))[:number]
        taken.update(most)
        found[word] = tuple(most)
    return found


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
