"""Analysis of an embedding file: ranks, example queries, recall by length and by word."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.bootstrap import RankedGallery, intervals
from pipeline.retrieval.ranking.galleries import galleries
from pipeline.retrieval.ranking.protocols import Protocol
from pipeline.retrieval.ranking.ranks import Ranks, query_rows, rank_both_ways
from pipeline.retrieval.ranking.recall import measures
from pipeline.retrieval.search import Gallery, SideName, nearest
from pipeline.retrieval.similarity import unit_rows
from pipeline.store.hashing import chosen
from pipeline.store.schema import SchemaError, convert
from pipeline.studies.embedding_map.plane import (
    Closeness,
    Point,
    Projection,
    closeness,
    placed,
)
from pipeline.studies.embedding_map.typical_words import words_of

SHOWN, FAILURES, TOP = 6, 6, 5
"""Number of example queries and of failures per direction, and number of results per query."""

MAPPED = 8  # number of images whose sentences are drawn as points
PLACED = 200  # number of images whose sentences t-SNE places, the drawn ones among them
SEED = 0  # seed that selects the example queries


@dataclass(frozen=True)
class QueryResult:
    """A query with its results."""

    query: str
    rank: int  # rank of its best correct item, from 1
    hits: tuple[str, ...]  # ids of the first `TOP` items, best first
    correct: frozenset[str]
    best_correct: str  # id of the correct item at `rank`


class SentencePlane(NamedTuple):
    """Sentences in a plane."""

    places: Mapping[str, tuple[Point, ...]]  # by image, of `MAPPED` images
    shares: tuple[float, float] | None  # explained variance of principal components, 0-1


@dataclass(frozen=True)
class Retrieval:
    """Results that are kept after an embedding file is closed."""

    image_ids: tuple[str, ...]
    galleries: tuple[RankedGallery, ...]
    first_gallery: Mapping[str, str]  # image id by caption id of the first gallery
    caption_ids: tuple[str, ...]
    caption_ranks: tuple[int, ...]
    """`caption_ids`, `caption_ranks`: id and rank, from 0, of each caption query."""
    rsum_interval: tuple[float, float]  # 95 % bootstrap interval of `rsum`
    closeness: Closeness | None
    """Of the first gallery; None for sets of vectors, or if no image has two sentences."""
    plane: SentencePlane | None  # of the embeddings; None for sets of vectors
    sentences: tuple[QueryResult, ...]
    found_first: QueryResult | None
    """Result of a random sentence whose image ranks first; None if there is none."""
    sentence_failures: tuple[QueryResult, ...]
    images: tuple[QueryResult, ...]
    """`sentences`, `images`: results of the example queries of each direction."""
    image_failures: tuple[QueryResult, ...]
    """Queries of a side with the highest ranks above 1, at most one caption per image."""


@dataclass(frozen=True)
class LengthBin:
    """The queries with a number of words from `first` to `last`."""

    first: int  # range of the number of words
    last: int
    words: float
    queries: int
    r10: float  # R@10 in per cent
    median_rank: float  # floor of the median rank, from 1

    @property
    def label(self) -> str:
        """Label of the bin, such as "7" or "12–15"."""
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True)
class WordRow:
    """The queries that contain a word."""

    word: str
    queries: int
    r10: float  # R@10 in per cent
    median_rank: float  # median rank, from 1


def protocol_of(metadata: Mapping[str, Any], recall: Mapping[str, float | int]) -> Protocol:
    """Return the protocol of a recall table."""
    protocol = metadata.get("protocol")
    if isinstance(protocol, dict):
        try:
            return convert(protocol, Protocol)
        except SchemaError as error:
            raise EmbeddingsError(
                f"a provenance has the invalid protocol {protocol} ({error}); run `pipeline "
                "evaluate` again"
            ) from error
    return Protocol("all", captions_per_image=int(recall["captions_per_image"]))


def retrieve(
    embeddings: Embeddings, protocol: Protocol, projection: Projection = "pca"
) -> Retrieval:
    """Rank all queries in the galleries of a protocol, and collect example results."""
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
        *_geometry(first, projection),
        _results_of(ranked, "captions", chosen(caption_ids, SHOWN, SEED)),
        next(iter(_results_of(ranked, "captions", chosen(firsts, 1, SEED))), None),
        _results_of(
            ranked, "captions", worst(caption_ids, caption_ranks, image_of_caption, FAILURES)
        ),
        _results_of(ranked, "images", chosen(image_ids, SHOWN, SEED)),
        _results_of(ranked, "images", worst(image_ids, image_ranks, image_ids, FAILURES)),
    )


def by_length(texts: Sequence[str], ranks: Sequence[int], least: int) -> tuple[LengthBin, ...]:
    """Group queries by their number of words, in bins of at least `least` queries."""
    of_length: dict[int, list[int]] = defaultdict(list)
    for text, rank in zip(texts, ranks, strict=True):
        of_length[len(words_of(text))].append(int(rank))
    bins: list[list[tuple[int, int]]] = []  # length and rank of each query
    for length in sorted(of_length):
        if not bins or len(bins[-1]) >= least:
            bins.append([])
        bins[-1] += [(length, rank) for rank in of_length[length]]
    if len(bins) > 1 and len(bins[-1]) < least:
        rest = bins.pop()
        bins[-1] += rest
    return tuple(map(_bin, bins))


def by_word(texts: Sequence[str], ranks: Sequence[int], least: int) -> tuple[WordRow, ...]:
    """Return a row for each word in at least `least` queries, highest R@10 first."""
    of_word: dict[str, list[int]] = defaultdict(list)
    for text, rank in zip(texts, ranks, strict=True):
        for word in set(words_of(text)):
            of_word[word].append(int(rank))
    rows = [
        WordRow(word, len(ranks_of_word), *_measured(ranks_of_word))
        for word, ranks_of_word in of_word.items()
        if len(ranks_of_word) >= least
    ]
    return tuple(sorted(rows, key=lambda row: (-row.r10, row.median_rank, -row.queries, row.word)))


def worst(
    ids: Sequence[str], ranks: Sequence[int], groups: Sequence[str], number: int
) -> list[str]:
    """Return the queries with the highest ranks above the first, at most one per group."""
    queries = sorted(zip(ids, ranks, groups, strict=True), key=lambda q: (-int(q[1]), q[0]))
    first: dict[str, str] = {}
    for query, rank, group in queries:
        if rank > 0:
            first.setdefault(group, query)
    return list(first.values())[:number]


def sentences_to_place(image_of: Mapping[str, str], projection: Projection) -> dict[str, list[str]]:
    """Return the sentences of the images to place, by image; the drawn ones are first."""
    sentences: dict[str, list[str]] = defaultdict(list)
    for caption, image in image_of.items():
        sentences[image].append(caption)
    number = MAPPED if projection == "pca" else PLACED
    return {image: sentences[image] for image in chosen([*sentences], number, SEED)}


def sentence_plane(
    rows: npt.NDArray[np.floating], sentences: Mapping[str, Sequence[str]], projection: Projection
) -> SentencePlane:
    """Place rows (sentences, dim), and keep the places of the first `MAPPED` images."""
    flat, shares = placed(rows, projection)
    left = iter(flat.tolist())
    places = {
        image: tuple((x, y) for x, y in islice(left, len(of_image)))
        for image, of_image in islice(sentences.items(), MAPPED)
    }
    return SentencePlane(places, shares)


def as_compared(rows: npt.NDArray[np.float32], similarity: str) -> npt.NDArray[np.floating]:
    """Return rows as the similarity compares them: L2-normalised for cosine."""
    return unit_rows(rows) if similarity == "cosine" else rows


def _geometry(
    e: Embeddings, projection: Projection
) -> tuple[Closeness | None, SentencePlane | None]:
    """Return `closeness` and `plane` of `Retrieval`."""
    if e.caption_embeddings.ndim != 2:
        return None, None
    close = closeness(e.caption_embeddings, e.image_of_caption)
    row_of = {caption: row for row, caption in enumerate(e.caption_ids)}
    image_of = dict(zip(e.caption_ids, e.caption_image_ids, strict=True))
    sentences = sentences_to_place(image_of, projection)
    rows = e.caption_embeddings[[row_of[c] for of_image in sentences.values() for c in of_image]]
    return close, sentence_plane(as_compared(rows, e.similarity), sentences, projection)


@dataclass(frozen=True)
class _Ranked:
    """A gallery with the ranks of `rank_both_ways`."""

    gallery: Embeddings
    images: Ranks
    captions: Ranks

    def ranks(self, asking: SideName) -> dict[str, int]:
        """Return the rank, from 0, of each query of a side by its id."""
        ids, ranks = (
            (self.gallery.caption_ids, self.captions)
            if asking == "captions"
            else (self.gallery.query_ids, self.images)
        )
        return dict(zip(ids, ranks.tolist(), strict=True))


def _results_of(
    ranked: Sequence[_Ranked], asking: SideName, queries: Sequence[str]
) -> tuple[QueryResult, ...]:
    results: dict[str, QueryResult] = {}
    for r in ranked:
        e, ranks = r.gallery, r.ranks(asking)
        ids = e.caption_ids if asking == "captions" else e.image_ids
        row_of = {query: row for row, query in enumerate(ids)}
        rows = [row_of[query] for query in queries if query in ranks]
        if not rows:
            continue
        side: SideName = "images" if asking == "captions" else "captions"
        gallery = Gallery.of(e, side)
        vectors = Gallery.of(e, asking).rows[rows]
        nearest_rows = nearest(gallery, vectors, asking, TOP).rows
        for row, vector, hits in zip(rows, vectors, nearest_rows, strict=True):
            correct = _correct_rows(e, asking, row)
            correct_items = Gallery(
                side,
                tuple(gallery.ids[k] for k in correct),
                gallery.rows[correct],
                gallery.similarity,
            )
            best = nearest(correct_items, vector[None], asking, 1).rows[0, 0]
            results[ids[row]] = QueryResult(
                ids[row],
                ranks[ids[row]] + 1,
                tuple(gallery.ids[k] for k in hits),
                frozenset(correct_items.ids),
                correct_items.ids[best],
            )
    return tuple(results[query] for query in queries)


def _correct_rows(e: Embeddings, asking: SideName, query: int) -> list[int]:
    """Return the rows of the correct items of the query in row `query`."""
    if asking == "captions":
        return [e.image_ids.index(e.caption_image_ids[query])]
    return [row for row, image in enumerate(e.caption_image_ids) if image == e.image_ids[query]]


def _bin(queries: Sequence[tuple[int, int]]) -> LengthBin:
    lengths, ranks = zip(*queries, strict=True)
    words = sum(lengths) / len(ranks)
    return LengthBin(lengths[0], lengths[-1], words, len(ranks), *_measured(ranks))


def _measured(ranks: Sequence[int]) -> tuple[float, float]:
    """Return R@10 and the median rank for ranks counted from 0."""
    values = measures(np.array(ranks, np.int64))
    return values["r10"], values["median_rank"]
