"""Linear regularities of an embedding space: an image - "blue" + "red" is near red things.

Kiros et al. 2014, section 3.2, show examples; here hits are counted, for every image with a word
and each other word of its kind. Dong et al. 2018, section IV-C, add vectors of any length; where a
space has such vectors, both ways are measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.datasets.image_truth import ImageWords, WordKind
from pipeline.datasets.manifest import Manifest
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.composition import around_the_mean, compose, require_composable
from pipeline.retrieval.query.searcher import Searcher
from pipeline.retrieval.ranking.bootstrap import mean_intervals
from pipeline.retrieval.similarity import Vectors, unit_rows
from pipeline.store.errors import WrongUsage
from pipeline.store.files import write_json
from pipeline.store.own_files import reading
from pipeline.store.schema import decode
from pipeline.store.wording import markdown_table
from pipeline.studies.embedding_map.plane import common_plane
from pipeline.text.tokenizers.tokenizer import TOKENIZERS

TOP = 5
"""Number of hits per query that are counted."""

AGREEING = 2
"""Minimum number of captions with a word for the image to count as having it."""

PLANES = ("colours", "places", "weather")
SHOWN = 3
"""Maximum number of images per word in a plane."""

CHANGES, NEAREST = 2, 4
"""Number of changes of words with a sheet, by kind, and of images on a sheet."""

_UNIT = 0.01
"""Embeddings whose lengths differ less from 1 are of length 1, such as those stored as float16."""

_Flags = npt.NDArray[np.bool_]
_Hits = npt.NDArray[np.int64]

PHOTOS = (
    WordKind.of(
        "nouns",
        "places",
        "dog,dogs man,men woman,women boy,boys girl,girls child,children,kid,kids bike,bikes,"
        "bicycle horse,horses car,cars ball,balls",
    ),
    WordKind.of("colours", "nouns", "black white brown red blue green yellow orange pink"),
    WordKind.of("counts", "nouns", "one two three four group"),
    WordKind.of(
        "places",
        "nouns",
        "snow,snowy beach,sand grass,grassy water,ocean,lake street,road,sidewalk field pool "
        "mountain,mountains park",
    ),
    # Figure 5 b.
    WordKind.of(
        "weather",
        "nouns",
        "sunny,sun,sunshine sunset,sunrise cloudy,clouds,cloud,overcast rain,rainy,raining,wet "
        "snow,snowy,snowing fog,foggy,mist,misty night,dark",
    ),
)
"""Words of captions of photographs, and their forms."""


@dataclass(frozen=True)
class Plane:
    """Words and images of a kind in the plane of their first two principal components."""

    words: Mapping[str, tuple[float, float]]
    """Point of each word; words and images are each centred on their own mean."""
    images: Mapping[str, Mapping[str, tuple[float, float]]]
    """By word, the points of images with this word and no other word of the kind."""
    shares: tuple[float, float]  # explained variance of both components, 0-1


@dataclass(frozen=True)
class Sheet:
    """The images nearest to an image minus a word plus another (figure 4 of Kiros et al. 2014)."""

    image: str
    minus: str
    plus: str  # the same word in a sanity check
    nearest: tuple[str, ...]  # ids of other images, best first


@dataclass(frozen=True)
class Regularities:
    """Results of queries by an image minus one word plus another, in per cent."""

    kinds: Mapping[str, Mapping[str, int | float]]
    """By kind of word: the numbers of `analogies` (pairs of words) and `queries`; for each rule,
    the share of the first `TOP` hits with the new word (`<rule>_has`), with a word of the kind that
    should stay (`<rule>_keeps`) and with both (`<rule>_both`); `chance`, the share of images with
    the new word; and the `gain` of "both" over the better baseline in percentage points, with the
    bounds of its 95 % bootstrap interval over images, `gain_low` and `gain_high`. Rules are the
    query ("composed") and two baselines, the "image" alone and the new "word" alone. If requested,
    "resorted" re-sorts the nearest images of the query; if embeddings have other lengths than 1,
    "unscaled" is the query from vectors of these lengths."""
    pairs: Mapping[str, Mapping[str, Mapping[str, int | float]]]
    """By kind and "old - new": `queries`, and `has`, `keeps` and `both` of the composed query."""
    planes: Mapping[str, Plane]
    sheets: Mapping[str, tuple[Sheet, ...]] = field(default_factory=dict)  # by kind
    provenance: Mapping[str, Any] = field(default_factory=dict)


def regularities(
    searcher: Searcher,
    log: Callable[[str], None],
    image_words: ImageWords | None = None,
    *,
    around_mean: int | None = None,
) -> Regularities:
    """Evaluate all analogies of the dataset's kinds of words on the embedded images."""
    if around_mean is not None and around_mean < TOP:
        raise WrongUsage(
            f"`around_mean={around_mean}` is fewer than the {TOP} hits that are counted; raise "
            "`around_mean=...`"
        )
    require_composable(searcher.similarity)
    embedded, manifest = searcher.embedded.space, searcher.embedded.manifest
    kinds = PHOTOS if image_words is None else image_words.kinds
    has = words_of_images(manifest, embedded.image_ids, kinds, image_words)
    space = _Space(embedded.image_embeddings[:], _vectors(searcher, kinds, log))
    tables: dict[str, dict[str, float]] = {}
    pairs: dict[str, dict[str, dict[str, float]]] = {}
    sheets: dict[str, tuple[Sheet, ...]] = {}
    for kind in kinds:
        analogies = list(_ask(space, has[kind.name], has[kind.keeps], around_mean))
        if not analogies:
            continue
        sheets[kind.name] = tuple(_sheets(space, embedded.image_ids, analogies))
        pairs[kind.name] = {
            f"{a.old} - {a.new}": {"queries": len(a.chance), **a.means("composed")}
            for a in analogies
        }
        tables[kind.name] = {
            "analogies": len(analogies),
            "queries": sum(len(a.chance) for a in analogies),
            **{
                f"{rule}_{name}": _mean([a.figures[rule][name] for a in analogies])
                for rule in analogies[0].figures
                for name in ("has", "keeps", "both")
            },
            "chance": _mean([a.chance for a in analogies]),
            **_gain(analogies, len(space.images)),
        }
    if not tables:
        raise EmbeddingsError("no embedded image has a word that could replace another")
    planes = {
        kind.name: plane
        for kind in kinds
        if kind.name in PLANES
        and (plane := _plane(space, embedded.image_ids, has[kind.name])) is not None
    }
    return Regularities(tables, pairs, planes, sheets, dict(embedded.provenance))


def words_of_images(
    manifest: Manifest,
    images: Sequence[str],
    kinds: Sequence[WordKind],
    image_words: ImageWords | None = None,
) -> dict[str, dict[str, _Flags]]:
    """Return by kind and word the mask of the images with the word, (images,) bool."""
    words_of: dict[str, list[list[Set[str]]]]
    if image_words is None:
        tokenize = TOKENIZERS["treebank"].tokenize
        of_captions: list[list[Set[str]]] = [
            [set(tokenize(text)) for text in manifest.by_id[image].captions] for image in images
        ]
        words_of = {kind.name: of_captions for kind in kinds}
    else:
        of_images = [image_words.words(image) for image in images]
        words_of = {
            kind.name: [[words.get(kind.name, set())] for words in of_images] for kind in kinds
        }
    return {
        kind.name: {
            word: np.array([_agreed(forms, sets) for sets in words_of[kind.name]])
            for word, forms in kind.words.items()
        }
        for kind in kinds
    }


def _agreed(forms: frozenset[str], sets: Sequence[Set[str]]) -> bool:
    """Return whether enough captions of an image, as sets of words, have a form of a word."""
    return sum(bool(forms & words) for words in sets) >= min(AGREEING, len(sets) or 1)


def _vectors(
    searcher: Searcher, kinds: Sequence[WordKind], log: Callable[[str], None]
) -> dict[str, npt.NDArray[np.float32]]:
    vectors, unknown = {}, []
    words = [*dict.fromkeys(word for kind in kinds for word in kind.words)]
    searcher.models.keep_encoder(words)
    for word in words:
        try:
            (row,) = searcher.models.embed_sentences([word], log)
        except EmbeddingsError:
            unknown.append(word)
            continue
        if row.any():
            vectors[word] = row
    if unknown:
        log(f"the encoder does not know {', '.join(unknown)}")
    return vectors


class _Space:
    """The embeddings of images and words, and the nearest images of queries made of them."""

    def __init__(self, images: Vectors, words: Mapping[str, Vectors]) -> None:
        """Keep (images, dim) float32 and the (dim,) float32 of each word, of any length."""
        self.images, self.words = images, words
        self.units = unit_rows(images).astype(np.float32)
        lengths = np.linalg.norm(np.vstack((images, *words.values())), axis=1)
        self._scaled = bool((np.abs(lengths - 1) > _UNIT).any())

    def hits(
        self, rows: npt.NDArray[np.int64], old: str, new: str, around: int | None
    ) -> dict[str, _Hits]:
        """Return by rule the (queries, `TOP`) nearest other images of some images, best first."""
        images, minus, plus = self.images[rows], self.words[old][None], self.words[new][None]
        queries = {
            "composed": compose(images, minus, plus),
            "image": self.units[rows],
            "word": np.repeat(plus, len(rows), axis=0),
        }
        if self._scaled:
            queries["unscaled"] = compose(images, minus, plus, unit=False)
        hits = {rule: self._nearest(of, rows, TOP) for rule, of in queries.items()}
        if around is not None:
            hits["resorted"] = np.stack(
                [
                    nearest[around_the_mean(self.units[nearest])[:TOP]]
                    for nearest in self._nearest(queries["composed"], rows, around)
                ]
            )
        return hits

    def _nearest(self, queries: Vectors, rows: npt.NDArray[np.int64], number: int) -> _Hits:
        scores = queries @ self.units.T
        scores[np.arange(len(rows)), rows] = -np.inf  # the image itself
        number = min(number, len(self.units) - 1)
        return np.argsort(-scores, axis=1, kind="stable")[:, :number]


@dataclass(frozen=True)
class _Analogy:
    """Queries that replace one word by another."""

    old: str
    new: str
    rows: npt.NDArray[np.int64]  # (queries,) of the images of the queries
    # (queries,) by rule and name; NaN where there is nothing to keep.
    figures: Mapping[str, Mapping[str, npt.NDArray[np.float64]]]
    chance: npt.NDArray[np.float64]  # (queries,)

    def means(self, rule: str) -> dict[str, float]:
        return {name: _mean([values]) for name, values in self.figures[rule].items()}


def _ask(
    space: _Space, has: Mapping[str, _Flags], keeping: Mapping[str, _Flags], around: int | None
) -> Iterator[_Analogy]:
    stays = np.stack([*keeping.values()], axis=1)
    queried = space.images.any(axis=1)
    for old, new in permutations([word for word in has if word in space.words], 2):
        rows = np.flatnonzero(has[old] & ~has[new] & queried)
        if not rows.size or not has[new].any():
            continue
        nothing = ~stays[rows].any(axis=1)
        figures = {}
        for rule, hits in space.hits(rows, old, new, around).items():
            gained = has[new][hits]
            shared = (stays[hits] & stays[rows][:, None]).any(axis=2)
            figures[rule] = {
                "has": gained.mean(axis=1),
                "keeps": np.where(nothing, np.nan, shared.mean(axis=1)),
                "both": np.where(nothing, np.nan, (gained & shared).mean(axis=1)),
            }
        chance = np.full(len(rows), has[new].sum() / (len(space.images) - 1))
        yield _Analogy(old, new, rows, figures, chance)


def _mean(values: Sequence[npt.NDArray[np.float64]]) -> float:
    """Return the mean over all queries in per cent; 0 without queries."""
    joined = np.concatenate(values)
    joined = joined[~np.isnan(joined)]
    return 100 * float(joined.mean()) if joined.size else 0.0


def _gain(analogies: Sequence[_Analogy], images: int) -> dict[str, float]:
    """Return `gain`, `gain_low` and `gain_high` of a kind."""
    composed, *baselines = (
        np.concatenate([a.figures[rule]["both"] for a in analogies])
        for rule in ("composed", "image", "word")
    )
    gains = 100 * (composed - max(baselines, key=lambda both: _mean([both])))
    known, rows = ~np.isnan(gains), np.concatenate([a.rows for a in analogies])
    if not known.any():
        return dict.fromkeys(("gain", "gain_low", "gain_high"), 0.0)
    low, high = mean_intervals(gains[None, known], rows[known], images)[:, 0]
    return {"gain": float(gains[known].mean()), "gain_low": float(low), "gain_high": float(high)}


def _sheets(space: _Space, ids: Sequence[str], analogies: Sequence[_Analogy]) -> Iterator[Sheet]:
    """Yield sheets of some changes, and the first without a change."""
    drawn = np.random.default_rng(0).permutation(len(analogies))[:CHANGES]
    changes = [(analogies[at].rows[:1], analogies[at].old, analogies[at].new) for at in drawn]
    row, word, _ = changes[0]
    for at, minus, plus in (*changes, (row, word, word)):
        (hits,) = space.hits(at, minus, plus, None)["composed"]
        yield Sheet(ids[at[0]], minus, plus, tuple(ids[k] for k in hits[:NEAREST]))


def _plane(space: _Space, ids: Sequence[str], has: Mapping[str, _Flags]) -> Plane | None:
    words = [word for word in has if word in space.words]
    alone = np.stack([*has.values()], axis=1).sum(axis=1) == 1
    chosen = {word: np.flatnonzero(has[word] & alone)[:SHOWN].tolist() for word in words}
    rows = [row for of_word in chosen.values() for row in of_word]
    if len(words) < 2 or not rows:
        return None
    word_places, image_places, shares = common_plane(
        unit_rows(np.stack([space.words[word] for word in words])).astype(np.float32),
        space.units[rows],
    )
    at = {row: (float(x), float(y)) for row, (x, y) in zip(rows, image_places, strict=True)}
    return Plane(
        {word: (float(x), float(y)) for word, (x, y) in zip(words, word_places, strict=True)},
        {word: {ids[row]: at[row] for row in of_word} for word, of_word in chosen.items()},
        shares,
    )


def write_regularities(file: str | Path, results: Regularities) -> None:
    """Write the results as JSON."""
    write_json(Path(file), asdict(results))


def read_regularities(file: str | Path) -> Regularities:
    """Read a file of `write_regularities`."""
    remedy = "`pipeline search --regularities` writes one"
    with reading(Path(file), "a file of regularities", remedy, EmbeddingsError):
        return decode(Path(file).read_bytes(), Regularities)


COLUMNS = {
    "analogies": "analogies",
    "queries": "queries",
    "composed_has": "has new",
    "composed_keeps": "keeps",
    "composed_both": "both",
    "resorted_both": "both: re-sorted",
    "unscaled_both": "both: without unit length",
    "image_both": "both: image alone",
    "word_both": "both: word alone",
    "gain": "gain",
    "gain_low": "from",
    "gain_high": "to",
    "word_has": "has new: word alone",
    "chance": "has new: chance",
}
"""Headings of the figures of a kind; not every space has all of them."""


def columns_of(results: Regularities) -> dict[str, str]:
    """Return the `COLUMNS` that a space has."""
    return {
        name: heading
        for name, heading in COLUMNS.items()
        if any(name in row for row in results.kinds.values())
    }


def markdown(results: Regularities) -> str:
    """Return the results by kind as a Markdown table."""
    columns = columns_of(results)
    digits = [0 if name in ("analogies", "queries") else 1 for name in columns]
    rows = (
        [kind, *(f"{row[name]:.{n}f}" for name, n in zip(columns, digits, strict=True))]
        for kind, row in results.kinds.items()
    )
    return markdown_table(["kind", *columns.values()], rows)
