"""Queries and answers of the search page as data; one query at a time uses the models."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from PIL import Image

from pipeline.datasets.manifest import Manifest
from pipeline.images.decoding.decode import UnusableImage, decode
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.composition import is_composable
from pipeline.retrieval.query import SIDES
from pipeline.retrieval.query.embedded_dataset import Hit, NothingFulfils
from pipeline.retrieval.query.searcher import Searcher
from pipeline.retrieval.search import SYMMETRIC
from pipeline.store.errors import PipelineError
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.format import MISSING
from pipeline.studies.embedding_map.make_map import EmbeddingMap, make_map
from pipeline.studies.embedding_map.plane import Projection
from pipeline.web.serve.served_images import MAX_PIXELS

if TYPE_CHECKING:
    from pipeline.language.captioning.captions import Caption
    from pipeline.regions.localization.region_searcher import RegionHit

Describe = Callable[[Image.Image], "Sequence[Caption]"]
"""Function from a decoded image to its captions."""

MAX_CHARACTERS, MAX_WORDS = 1000, 10
"""Maximum length of a sentence, and maximum number of words subtracted or added."""

CHOSEN = "is."  # prefix of the names of fields whose value is selected from a list
MOST_LISTS = 6  # maximum number of fields with such a list
MOST_PAGES = 100  # maximum number of pages of results


@dataclass(frozen=True)
class Query:
    """A sentence, or an image minus some words and plus others."""

    sentence: str = ""  # sentence; "" for a query by image
    image: str = ""  # id of an embedded image, or ""
    upload: bytes = field(default=b"", repr=False)  # contents of an image file, or b""
    minus: tuple[str, ...] = ()  # words subtracted from the image, and added to it
    plus: tuple[str, ...] = ()
    of: str = ""
    """Kind of result, a name in `SIDES`; "" for `pipeline.retrieval.query.default_side`."""
    where: str = ""  # conditions as text, one per line
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Field to the value selected from its list."""
    page: int = 1  # page of the results, from 1

    @property
    def conditions(self) -> tuple[str, ...]:
        """All conditions on the results."""
        lines = [line for line in self.where.splitlines() if line.strip()]
        return (*(f"{name}={value}" for name, value in self.chosen.items()), *lines)

    @property
    def kept(self) -> dict[str, str]:
        """Form fields of the conditions, for links to further queries."""
        lists = {f"{CHOSEN}{name}": value for name, value in self.chosen.items()}
        return {**({"where": self.where} if self.where else {}), **lists}

    def at(self, page: int) -> dict[str, str]:
        """Return the fields of the same query for another page; not for uploads."""
        words = {"minus": " ".join(self.minus), "plus": " ".join(self.plus)}
        texts = {"q": self.sentence, "image": self.image, **words, "of": self.of}
        fields = {name: text for name, text in texts.items() if text}
        return {**fields, **self.kept, "page": str(page)}

    @classmethod
    def of_fields(cls, fields: Mapping[str, str], upload: bytes = b"") -> "Query":
        """Parse a query from form fields: q, image, minus, plus, of, where, page, is.NAME."""
        names = {"q", "image", "minus", "plus", "of", "where", "page"}
        lists = {name: text for name, text in fields.items() if name.startswith(CHOSEN)}
        if unknown := sorted(fields.keys() - names - lists.keys()):
            raise EmbeddingsError(
                f"there is no field {unknown[0]!r}; the fields are {', '.join(sorted(names))}"
            )
        if long := [name for name, text in fields.items() if len(text) > MAX_CHARACTERS]:
            raise EmbeddingsError(
                f"{long[0]} has {len(fields[long[0]])} characters; the limit is {MAX_CHARACTERS}"
            )
        page = fields.get("page") or "1"
        if not (page.isascii() and page.isdigit() and 1 <= int(page) <= MOST_PAGES):
            raise EmbeddingsError(f"page is {page!r}; expected a number from 1 to {MOST_PAGES}")
        sentence, image, of = (fields.get(name, "") for name in ("q", "image", "of"))
        minus, plus = (_words(fields.get(name, "")) for name in ("minus", "plus"))
        if of not in ("", *SIDES):
            raise EmbeddingsError(f"of is {of!r}; expected {' or '.join(SIDES)}")
        if sum(map(bool, (sentence, image, upload))) != 1:
            raise EmbeddingsError("expected either a sentence or one image")
        if sentence and (minus or plus):
            raise EmbeddingsError("words can be subtracted from or added to an image only")
        if len(minus) + len(plus) > MAX_WORDS:
            raise EmbeddingsError(f"{len(minus) + len(plus)} words; the limit is {MAX_WORDS}")
        chosen = {name.removeprefix(CHOSEN): text for name, text in lists.items() if text}
        where = fields.get("where", "")
        return cls(sentence, image, upload, minus, plus, of, where, chosen, int(page))


@dataclass(frozen=True)
class Answer:
    """One page of the results of a query, best first."""

    query: Query
    of: str  # kind of the hits, "images" or "sentences"
    hits: tuple[Hit, ...]
    notes: tuple[str, ...]  # notes on unknown words of the query and on missing results
    captions: "tuple[Caption, ...]" = ()
    """Captions of an upload without words by a language model, best first."""
    boxes: Mapping[str, "RegionHit"] = field(default_factory=dict)
    """Image id to the best box in the image."""
    more: bool = False  # whether another page follows

    def to_json(self) -> dict[str, Any]:
        """Return the values that `/search.json` answers with."""
        columns = ("rank", "score", "id", "image", "caption", "split")
        hits = [{name: getattr(hit, name) for name in columns} for hit in self.hits]
        for hit in hits:
            if found := self.boxes.get(hit["image"]):
                hit |= {"box": found.box, "size": found.size}  # x0 y0 x1 y1; width and height
        return {"of": self.of, "hits": hits, "notes": self.notes, "more": self.more}


class SearchService:
    """A thread-safe searcher: models are loaded once and used by one thread at a time."""

    filterable = True

    def __init__(
        self,
        searcher: Searcher,
        *,
        top: int = 12,
        describe: Describe | None = None,
        projection: Projection = "pca",
        monitor: Monitor = QUIET,
    ) -> None:
        """Load all models before the first query."""
        # Models are not thread-safe, and one query at a time bounds their memory.
        self._searcher, self._top, self._busy = searcher, top, threading.Lock()
        self._describe, self._projection = describe, projection
        self._mapping = threading.Lock()
        models = searcher.models
        self.experiment: str = str(searcher.embedded.space.provenance.get("experiment", ""))
        self.similarity: str = searcher.similarity
        self.manifest: Manifest = searcher.embedded.manifest
        self.image_ids: Sequence[str] = searcher.ids("images")
        self.split: str = searcher.embedded.of_splits
        sentences = len(searcher.ids("sentences"))
        self.searched: str = (
            f"{len(self.image_ids)} {self.manifest.media} and {sentences} sentences"
        )
        self.composable: bool = is_composable(self.similarity)
        self.sides: tuple[str, ...] = tuple(SIDES)[0 if self.similarity in SYMMETRIC else 1 :]
        if not sentences:
            self.sides = ("images",)  # kinds of result of a query by image, names in `SIDES`
        choices = islice(searcher.embedded.choices().items(), MOST_LISTS)
        self.choices: dict[str, tuple[str, ...]] = dict(choices)
        self.fields: Sequence[str] = searcher.embedded.fields.names
        models.keep_encoder([text for entry in self.manifest.entries for text in entry.captions])
        self.no_uploads: str = ""
        try:
            _ = models.network
        except PipelineError as error:
            self.no_uploads = str(error)  # reason why uploads cannot be embedded; "" if they can
            monitor.log(f"no uploads: {error}")

    @property
    def map(self) -> EmbeddingMap | None:
        """The map of the searched images, computed on first use."""
        with self._mapping:  # other threads wait for it
            return self._map

    @cached_property
    def _map(self) -> EmbeddingMap | None:
        entries = self.manifest.by_id
        return make_map(
            self._searcher.embedded.gallery("images"),
            lambda image: entries[image].captions,
            self._projection,
            images=self.image_ids,
        )

    def answer(self, query: Query) -> Answer:
        """Answer a query."""
        of = query.of or self._searcher.default_of(
            not query.sentence, bool(query.minus or query.plus)
        )
        notes = list[str]()
        captions: Sequence[Caption] = ()
        with self._busy:
            image = None if query.sentence else self._image(query)
            try:
                hits = self._hits(query, image, of, notes.append)
            except NothingFulfils as error:
                hits = []
                notes.append(f"{error}.")
            words = query.minus + query.plus
            if self._describe and isinstance(image, Image.Image) and not words:
                captions = self._describe(image)
        shown, more = page_of(hits, query.page, self._top)
        return Answer(query, of, shown, tuple(notes), tuple(captions), more=more)

    def _hits(
        self, query: Query, image: str | Image.Image | None, of: str, log: Callable[[str], None]
    ) -> list[Hit]:
        """Return the hits of all pages up to the requested one, and one more."""
        top = query.page * self._top + 1
        if image is None:
            return self._searcher.by_sentences(
                query.sentence, of=of, top=top, where=query.conditions, log=log
            )
        return self._searcher.by_image(
            image, minus=query.minus, plus=query.plus, of=of, top=top,
            where=query.conditions, log=log,
        )  # fmt: skip

    def _image(self, query: Query) -> str | Image.Image:
        """Return the id of an embedded image, or the decoded upload; never a path."""
        if query.image:
            if query.image not in self.image_ids:
                raise UnusableImage(f"there is no image {query.image!r}", MISSING)
            return query.image
        if self.no_uploads:
            raise EmbeddingsError(self.no_uploads)
        return decode(query.upload, MAX_PIXELS)


def page_of(hits: Sequence[Hit], page: int, top: int) -> tuple[tuple[Hit, ...], bool]:
    """Return the hits of a page, from 1, of `top` each, and whether more follow."""
    return tuple(hits[(page - 1) * top : page * top]), page < MOST_PAGES and len(hits) > page * top


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[\s,]+", text) if word)
