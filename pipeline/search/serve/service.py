"""The queries and answers of the page, as data; one query at a time uses the models."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from PIL import Image

from pipeline.embedding_map.make_map import EmbeddingMap, make_map
from pipeline.embedding_map.plane import Projection
from pipeline.errors import PipelineError
from pipeline.images.decoding.decode import MissingImage, decode
from pipeline.language.captioning.captions import Caption
from pipeline.progress import QUIET, Monitor
from pipeline.retrieval.composition import is_composable
from pipeline.retrieval.search import SYMMETRIC, SearchError
from pipeline.search.embedded_dataset import Hit
from pipeline.search.searcher import Searcher
from pipeline.search.serve.served_images import MAX_PIXELS
from pipeline.search.sides import SIDES

Describe = Callable[[Image.Image], Sequence[Caption]]
"""Returns captions of a decoded picture; see `pipeline.search.picture_captions`."""

MAX_CHARACTERS, MAX_WORDS = 1000, 10
"""Of a sentence, and of the words taken away or added."""

CHOSEN = "is."
"""What the names of fields begin with whose value is chosen of a list."""

MOST_LISTS = 6
"""Fields with such a list, of a dataset with more."""


@dataclass(frozen=True)
class Query:
    """A sentence, or a picture less some words and plus others.

    Attributes
    ----------
    sentence : "" if a picture is asked with.
    image : id of an image that is embedded already, or "".
    upload : bytes of an image file, or b"".
    minus, plus : words, with a picture.
    of : of `SIDES`, or "" for the default, `pipeline.search.sides.default_side`.
    where : conditions as text; see `pipeline.search.conditions.Condition`.
    chosen : values of fields that were chosen of a list, by the field.
    """

    sentence: str = ""
    image: str = ""
    upload: bytes = field(default=b"", repr=False)
    minus: tuple[str, ...] = ()
    plus: tuple[str, ...] = ()
    of: str = ""
    where: str = ""
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def conditions(self) -> tuple[str, ...]:
        """All conditions on what is found."""
        lines = [line for line in self.where.splitlines() if line.strip()]
        return (*(f"{name}={value}" for name, value in self.chosen.items()), *lines)

    @property
    def kept(self) -> dict[str, str]:
        """The fields of the conditions, for the links to further queries."""
        own = {f"{CHOSEN}{name}": value for name, value in self.chosen.items()}
        return {**({"where": self.where} if self.where else {}), **own}

    @classmethod
    def of_fields(cls, fields: Mapping[str, str], upload: bytes = b"") -> "Query":
        """Return the query of a form's fields: q, image, minus, plus, of, where, is.NAME.

        Raises
        ------
        SearchError
            A field is unknown, too long, or does not go with the others.
        """
        names = {"q", "image", "minus", "plus", "of", "where"}
        own = {name: text for name, text in fields.items() if name.startswith(CHOSEN)}
        if unknown := sorted(fields.keys() - names - own.keys()):
            raise SearchError(
                f"there is no field {unknown[0]!r}; there are {', '.join(sorted(names))}"
            )
        if long := [name for name, text in fields.items() if len(text) > MAX_CHARACTERS]:
            raise SearchError(
                f"{long[0]} has {len(fields[long[0]])} characters; the limit is {MAX_CHARACTERS}"
            )
        sentence, image, of = (fields.get(name, "") for name in ("q", "image", "of"))
        minus, plus = (_words(fields.get(name, "")) for name in ("minus", "plus"))
        if of not in ("", *SIDES):
            raise SearchError(f"of is {of!r}; expected {' or '.join(SIDES)}")
        if sum(map(bool, (sentence, image, upload))) != 1:
            raise SearchError("ask with a sentence or with one picture")
        if sentence and (minus or plus):
            raise SearchError("words are taken away from a picture, and added to one")
        if len(minus) + len(plus) > MAX_WORDS:
            raise SearchError(f"{len(minus) + len(plus)} words; the limit is {MAX_WORDS}")
        chosen = {name.removeprefix(CHOSEN): text for name, text in own.items() if text}
        return cls(sentence, image, upload, minus, plus, of, fields.get("where", ""), chosen)


@dataclass(frozen=True)
class Answer:
    """The nearest of a query, best first.

    Attributes
    ----------
    of : "images" or "sentences".
    hits : the images or sentences that were found.
    notes : lines on words of the query that the encoder does not know.
    captions : what a language model says of an upload without words, the best first.
    boxes : by id of an image its width and height, and what is drawn over it as elements of SVG.
    """

    query: Query
    of: str
    hits: tuple[Hit, ...]
    notes: tuple[str, ...]
    captions: tuple[Caption, ...] = ()
    boxes: Mapping[str, tuple[tuple[int, int], str]] = field(default_factory=dict)


class SearchService:
    """A searcher for several threads: its models are loaded at once and used by one at a time.

    Attributes
    ----------
    experiment, similarity : of the embeddings.
    manifest : of the dataset.
    image_ids : of the images that are embedded.
    split : what of the dataset is searched, such as " of split test"; "" if it is not known.
    searched : how many images and sentences are embedded, in words.
    composable : whether words can be taken away from a picture and added to it.
    sides : what a picture can look for, of `SIDES`.
    no_uploads : why uploads cannot be embedded; "" if they can.
    filterable : whether results can be restricted.
    choices : fields with few values, and these.
    fields : names of all fields that conditions can be about.
    """

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
        """Load the models, so that no query waits for them.

        Parameters
        ----------
        searcher : not to be used elsewhere.
        top : how many hits a query gets, at least 1.
        describe : captions of uploads; None: none.
        projection : of the map.
        monitor : takes a line on why there are no uploads, if so.

        Raises
        ------
        SearchError, PipelineError
            Head, encoder and dataset are not those of the embedding file.
        """
        self._searcher, self._top, self._busy = searcher, top, threading.Lock()
        self._describe, self._projection = describe, projection
        self._mapping = threading.Lock()
        models = searcher.models
        self.experiment = str(searcher.embedded.space.provenance.get("experiment", ""))
        self.similarity = searcher.similarity
        self.manifest, self.image_ids = searcher.embedded.manifest, searcher.ids("images")
        self.split: str = searcher.embedded.of_splits
        sentences = len(searcher.ids("sentences"))
        self.searched = f"{len(self.image_ids)} {self.manifest.media} and {sentences} sentences"
        self.composable: bool = is_composable(self.similarity)
        self.sides = tuple(SIDES)[0 if self.similarity in SYMMETRIC else 1 :]
        if not sentences:
            self.sides = ("images",)
        self.choices = dict(islice(searcher.embedded.choices().items(), MOST_LISTS))
        self.fields = searcher.embedded.fields.names
        models.keep_encoder([text for entry in self.manifest.entries for text in entry.captions])
        self.no_uploads = ""
        try:
            _ = models.network
        except PipelineError as error:
            self.no_uploads = str(error)
            monitor.log(f"no uploads: {error}")

    @property
    def map(self) -> EmbeddingMap | None:
        """The map of the images that are searched, made when it is first asked for."""
        with self._mapping:  # others wait for it
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
        """Answer a query.

        Raises
        ------
        SearchError
            It cannot be asked of these embeddings, or has no known word.
        UnusableImage
            No embedded image has this id, or the upload is no picture or too large.
        """
        of = query.of or self._searcher.default_of(
            not query.sentence, bool(query.minus or query.plus)
        )
        notes = list[str]()
        with self._busy:
            if query.sentence:
                (hits,) = self._searcher.by_sentences(
                    [query.sentence], of=of, top=self._top, where=query.conditions,
                    log=notes.append,
                )  # fmt: skip
                return Answer(query, of, tuple(hits), tuple(notes))
            picture = self._picture(query)
            hits = self._searcher.by_image(
                picture, minus=query.minus, plus=query.plus, of=of,
                top=self._top, where=query.conditions, log=notes.append,
            )  # fmt: skip
            captions: Sequence[Caption] = ()
            if self._describe and isinstance(picture, Image.Image) and not query.minus + query.plus:
                captions = self._describe(picture)
        return Answer(query, of, tuple(hits), tuple(notes), tuple(captions))

    def _picture(self, query: Query) -> str | Image.Image:
        """Return the id of an embedded image, never the path of a file, or the decoded upload."""
        if query.image:
            if query.image not in self.image_ids:
                raise MissingImage(f"there is no image {query.image!r}")
            return query.image
        if self.no_uploads:
            raise SearchError(self.no_uploads)
        return decode(query.upload, MAX_PIXELS)


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a field, between which stand blanks or commas."""
    return tuple(word for word in re.split(r"[\s,]+", text) if word)
