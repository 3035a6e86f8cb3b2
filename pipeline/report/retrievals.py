"""What an embedding file retrieves: ranks, results of some queries, recall by length and word."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.embedding_map.typical_words import words_of
from pipeline.hashing import chosen
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.geometry import Closeness, closeness, principal_plane
from pipeline.retrieval.ranking.galleries import galleries
from pipeline.retrieval.ranking.protocols import Protocol
from pipeline.retrieval.ranking.ranks import Ranks, image_rows, query_rows, rank_both_ways
from pipeline.retrieval.recall import measures
from pipeline.retrieval.search import Gallery, SideName, nearest
from pipeline.retrieval.significance.bootstrap import RankedGallery, intervals
from pipeline.retrieval.similarity import unit_rows
from pipeline.retrieval.tables import TableError
from pipeline.schema import SchemaError, convert

SHOWN, FAILURES, TOP = 6, 6, 5
"""Queries of each direction that are shown, failures likewise, and items found for each."""

MAPPED = 8
"""Images whose sentences are drawn as points."""

SEED = 0
"""Of the choice of the queries that are shown."""

Place = tuple[float, float]
"""A point of a plane."""


@dataclass(frozen=True)
class QueryResult:
    """A query and what was found for it.

    Attributes
    ----------
    query : its id.
    rank : of its best correct item, from 1.
    found : the ids of the first `TOP` items, best first.
    correct : the ids of all correct items.
    best_correct : the id of the correct one that has that rank.
    """

    query: str
    rank: int
    found: tuple[str, ...]
    correct: frozenset[str]
    best_correct: str


@dataclass(frozen=True)
class Retrieval:
    """What is kept of an embedding file once it is closed.

    Attributes
    ----------
    image_ids : the images that were queries.
    galleries : the ranks of each gallery, for intervals.
    first_gallery : the captions of the first gallery, id to the id of the image.
    caption_ids, caption_ranks : one a caption that counted as a query; ranks from 0.
    rsum_interval : 95 % bootstrap interval.
    closeness : of the first gallery's sentences; None for sets of vectors, or without pairs.
    places : by the id of a chosen image, where its sentences lie in the principal plane of all
        that are here: `MAPPED` images, {} for sets of vectors.
    shares : of the variance in the plane's two directions, 0-1.
    sentences, images : results of the chosen queries of each direction.
    found_first : the result of a sentence, drawn by the seed, whose image comes first; None if
        there is none.
    sentence_failures, image_failures : results of those with the greatest ranks; of the captions
        of one image, one.
    """

    image_ids: tuple[str, ...]
    galleries: tuple[RankedGallery, ...]
    first_gallery: Mapping[str, str]
    caption_ids: tuple[str, ...]
    caption_ranks: tuple[int, ...]
    rsum_interval: tuple[float, float]
    closeness: Closeness | None
    places: Mapping[str, tuple[Place, ...]]
    shares: tuple[float, float]
    sentences: tuple[QueryResult, ...]
    found_first: QueryResult | None
    sentence_failures: tuple[QueryResult, ...]
    images: tuple[QueryResult, ...]
    image_failures: tuple[QueryResult, ...]


@dataclass(frozen=True)
class LengthBin:
    """The queries whose number of words is `first` to `last`.

    Attributes
    ----------
    words : mean number of words of these queries.
    queries : their number.
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


def protocol_of(metadata: Mapping[str, Any], recall: Mapping[str, float | int]) -> Protocol:
    """Return the protocol that a recall table was taken by.

    Parameters
    ----------
    metadata : the table's `provenance.json`; without a protocol it was one gallery of everything.
    recall : the table, which says how many captions of an image counted.

    Raises
    ------
    TableError
        The provenance has a protocol with wrong fields.
    """
    protocol = metadata.get("protocol")
    if isinstance(protocol, dict):
        try:
            return convert(protocol, Protocol)
        except SchemaError as error:
            raise TableError(
                f"a provenance has the protocol {protocol}, which is none ({error}); run `pipeline "
                "evaluate` again"
            ) from error
    return Protocol("all", captions_per_image=int(recall["captions_per_image"]))


def retrieve(embeddings: Embeddings, protocol: Protocol) -> Retrieval:
    """Rank all queries of a protocol's galleries, and search some of them in their own gallery.

    Raises
    ------
    ProtocolError, EmbeddingsError
        See `pipeline.retrieval.ranking.protocols`.
    """
    ranked = [_Ranked(e, *rank_both_ways(e)) for e in galleries(embeddings, protocol)]
    of_galleries = tuple(RankedGallery(r.images, r.captions, query_rows(r.gallery)) for r in ranked)
    bounds = intervals(of_galleries)
    caption_ids = tuple(caption for r in ranked for caption in r.gallery.caption_ids)
    caption_ranks = tuple(int(rank) for r in ranked for rank in r.captions)
    image_of_caption = tuple(image for r in ranked for image in r.gallery.caption_image_ids)
    image_ids = tuple(image for r in ranked for image in r.gallery.query_ids)
    image_ranks = tuple(int(rank) for r in ranked for rank in r.images)
    first = ranked[0].gallery
    firsts = [c for c, rank in zip(caption_ids, caption_ranks, strict=True) if rank == 0]
    return Retrieval(
        image_ids,
        of_galleries,
        dict(zip(first.caption_ids, first.caption_image_ids, strict=True)),
        caption_ids,
        caption_ranks,
        (bounds["rsum_low"], bounds["rsum_high"]),
        *_geometry(first),
        _results_of(ranked, "captions", chosen(caption_ids, SHOWN, SEED)),
        next(iter(_results_of(ranked, "captions", chosen(firsts, 1, SEED))), None),
        _results_of(
            ranked, "captions", worst(caption_ids, caption_ranks, image_of_caption, FAILURES)
        ),
        _results_of(ranked, "images", chosen(image_ids, SHOWN, SEED)),
        _results_of(ranked, "images", worst(image_ids, image_ranks, image_ids, FAILURES)),
    )


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
    queries = sorted(zip(ids, ranks, groups, strict=True), key=lambda q: (-int(q[1]), q[0]))
    first: dict[str, str] = {}
    for query, _, group in queries:
        first.setdefault(group, query)
    return list(first.values())[:number]


def sentence_plane(
    embeddings: Embeddings, wanted: Sequence[str]
) -> tuple[dict[str, tuple[Place, ...]], tuple[float, float]]:
    """Place the sentences of the wanted images in their principal plane; with its two shares."""
    of_image = [
        [row for row, image in enumerate(embeddings.caption_image_ids) if image == wanted_image]
        for wanted_image in wanted
    ]
    rows = embeddings.caption_embeddings[[row for captions in of_image for row in captions]]
    flat, shares = principal_plane(as_compared(rows, embeddings.similarity))
    left = iter(flat.tolist())
    places = {
        image: tuple((x, y) for x, y in islice(left, len(captions)))
        for image, captions in zip(wanted, of_image, strict=True)
    }
    return places, shares


def as_compared(rows: npt.NDArray[np.float32], similarity: str) -> npt.NDArray[np.floating]:
    """Return rows as their similarity sees them: at length 1 where lengths do not count."""
    return unit_rows(rows) if similarity == "cosine" else rows


def _geometry(
    e: Embeddings,
) -> tuple[Closeness | None, dict[str, tuple[Place, ...]], tuple[float, float]]:
    """Return `closeness`, `places` and `shares` of `Retrieval`."""
    if e.caption_embeddings.ndim != 2:
        return None, {}, (0.0, 0.0)
    close = closeness(e.caption_embeddings, image_rows(e))
    return close, *sentence_plane(e, chosen(e.query_ids, MAPPED, SEED))


@dataclass(frozen=True)
class _Ranked:
    """A gallery with the ranks of `rank_both_ways`."""

    gallery: Embeddings
    images: Ranks
    captions: Ranks

    def ranks(self, asking: SideName) -> dict[str, int]:
        """Return the rank of each query of a side, from 0, by its id."""
        ids, ranks = (
            (self.gallery.caption_ids, self.captions)
            if asking == "captions"
            else (self.gallery.query_ids, self.images)
        )
        return dict(zip(ids, ranks.tolist(), strict=True))


def _results_of(
    ranked: Sequence[_Ranked], asking: SideName, wanted: Sequence[str]
) -> tuple[QueryResult, ...]:
    results: dict[str, QueryResult] = {}
    for r in ranked:
        e, ranks = r.gallery, r.ranks(asking)
        ids = e.caption_ids if asking == "captions" else e.image_ids
        row_of = {query: row for row, query in enumerate(ids)}
        rows = [row_of[query] for query in wanted if query in ranks]
        if not rows:
            continue
        side: SideName = "images" if asking == "captions" else "captions"
        gallery = Gallery.of(e, side)
        queries = Gallery.of(e, asking).rows[rows]
        found = nearest(gallery, queries, asking, TOP).rows
        for row, query, hits in zip(rows, queries, found, strict=True):
            own = _own(e, asking, row)
            own_gallery = Gallery(
                side,
                tuple(gallery.ids[k] for k in own),
                gallery.rows[own],
                gallery.similarity,
            )
            best = nearest(own_gallery, query[None], asking, 1).rows[0, 0]
            results[ids[row]] = QueryResult(
                ids[row],
                ranks[ids[row]] + 1,
                tuple(gallery.ids[k] for k in hits),
                frozenset(own_gallery.ids),
                own_gallery.ids[best],
            )
    return tuple(results[query] for query in wanted)


def _own(e: Embeddings, asking: SideName, query: int) -> list[int]:
    """Return the rows of the correct items of the query in row `query`."""
    if asking == "captions":
        return [e.image_ids.index(e.caption_image_ids[query])]
    return [row for row, image in enumerate(e.caption_image_ids) if image == e.image_ids[query]]


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
