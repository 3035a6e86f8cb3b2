"""What an embedding file retrieves: the rank of every query, and the best answers to some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.analysis.breakdowns import chosen, worst
from pipeline.report.analysis.spaces import Place, sentence_plane
from pipeline.retrieval.bootstrap import RankedGallery, intervals
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.galleries import galleries
from pipeline.retrieval.geometry import Closeness, closeness
from pipeline.retrieval.protocols import Protocol
from pipeline.retrieval.ranks import Ranks, image_rows, rank_both_ways
from pipeline.retrieval.search import Gallery, SideName, nearest
from pipeline.retrieval.tables import TableError

SHOWN, FAILURES, TOP = 6, 6, 5
"""Queries of each direction that are shown, failures likewise, and answers to each."""

MAPPED = 8
"""Images whose sentences are drawn as points."""

SEED = 0
"""Of the choice of the queries that are shown."""


@dataclass(frozen=True)
class Answer:
    """A query and what was found.

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
    image_ids : the images that were ranked.
    first_gallery : the captions of the first gallery, id to the id of the image.
    caption_ids, caption_ranks : one a caption that counted as a query; ranks from 0.
    rsum_interval : 95 % bootstrap interval.
    closeness : of the first gallery's sentences; None for sets of vectors, or without pairs.
    places : by the id of a chosen image, where its sentences lie in the principal plane of all
        that are here: `MAPPED` images, {} for sets of vectors.
    shares : of the variance in the plane's two directions, 0-1.
    sentences, images : answers to the chosen queries of each direction.
    sentence_failures, image_failures : answers to those with the greatest ranks; of the captions
        of one image, one.
    """

    image_ids: tuple[str, ...]
    first_gallery: Mapping[str, str]
    caption_ids: tuple[str, ...]
    caption_ranks: tuple[int, ...]
    rsum_interval: tuple[float, float]
    closeness: Closeness | None
    places: Mapping[str, tuple[Place, ...]]
    shares: tuple[float, float]
    sentences: tuple[Answer, ...]
    sentence_failures: tuple[Answer, ...]
    images: tuple[Answer, ...]
    image_failures: tuple[Answer, ...]


def protocol_of(provenance: Mapping[str, Any], recall: Mapping[str, float | int]) -> Protocol:
    """Return the protocol that a recall table was taken by.

    Parameters
    ----------
    provenance : of `pipeline evaluate`; without a protocol one gallery of everything is meant.
    recall : its table, which says how many captions of an image counted.

    Raises
    ------
    TableError
        The provenance has a protocol that is none.
    """
    said = provenance.get("protocol")
    if isinstance(said, dict):
        try:
            return Protocol(**said)
        except TypeError as error:
            raise TableError(
                f"a provenance has the protocol {said}, which is none ({error}); run `pipeline "
                "evaluate` again"
            ) from error
    return Protocol("all", captions_per_image=int(recall["captions_per_image"]))


def retrieve(embeddings: Embeddings, protocol: Protocol) -> Retrieval:
    """Rank all queries of a protocol's galleries and answer some in their own gallery.

    Raises
    ------
    ProtocolError, EmbeddingsError
        See `pipeline.retrieval.protocols`.
    """
    ranked = [_Ranked(one, *rank_both_ways(one)) for one in galleries(embeddings, protocol)]
    bounds = intervals([RankedGallery(r.images, r.captions, image_rows(r.gallery)) for r in ranked])
    caption_ids = tuple(one for r in ranked for one in r.gallery.caption_ids)
    caption_ranks = tuple(int(rank) for r in ranked for rank in r.captions)
    owners = tuple(one for r in ranked for one in r.gallery.caption_image_ids)
    image_ids = tuple(one for r in ranked for one in r.gallery.image_ids)
    image_ranks = tuple(int(rank) for r in ranked for rank in r.images)
    first = ranked[0].gallery
    return Retrieval(
        image_ids,
        dict(zip(first.caption_ids, first.caption_image_ids, strict=True)),
        caption_ids,
        caption_ranks,
        (bounds["rsum_low"], bounds["rsum_high"]),
        *_geometry(first),
        _answers(ranked, "captions", chosen(caption_ids, SHOWN, SEED)),
        _answers(ranked, "captions", worst(caption_ids, caption_ranks, owners, FAILURES)),
        _answers(ranked, "images", chosen(image_ids, SHOWN, SEED)),
        _answers(ranked, "images", worst(image_ids, image_ranks, image_ids, FAILURES)),
    )


def _geometry(
    e: Embeddings,
) -> tuple[Closeness | None, dict[str, tuple[Place, ...]], tuple[float, float]]:
    """Return `closeness`, `places` and `shares` of `Retrieval`."""
    if e.caption_embeddings.ndim != 2:
        return None, {}, (0.0, 0.0)
    close = closeness(e.caption_embeddings, image_rows(e))
    return close, *sentence_plane(e, chosen(e.image_ids, MAPPED, SEED))


@dataclass(frozen=True)
class _Ranked:
    """A gallery with the ranks of `rank_both_ways`."""

    gallery: Embeddings
    images: Ranks
    captions: Ranks


def _answers(
    ranked: Sequence[_Ranked], asking: SideName, wanted: Sequence[str]
) -> tuple[Answer, ...]:
    given: dict[str, Answer] = {}
    for one in ranked:
        e = one.gallery
        ids, ranks = (
            (e.caption_ids, one.captions) if asking == "captions" else (e.image_ids, one.images)
        )
        row_of = {query: row for row, query in enumerate(ids)}
        rows = [row_of[query] for query in wanted if query in row_of]
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
            given[ids[row]] = Answer(
                ids[row],
                int(ranks[row]) + 1,
                tuple(gallery.ids[k] for k in hits),
                frozenset(own_gallery.ids),
                own_gallery.ids[best],
            )
    return tuple(given[query] for query in wanted)


def _own(e: Embeddings, asking: SideName, query: int) -> list[int]:
    """Return the rows of the correct items of the query in row `query`."""
    if asking == "captions":
        return [e.image_ids.index(e.caption_image_ids[query])]
    return [row for row, image in enumerate(e.caption_image_ids) if image == e.image_ids[query]]
