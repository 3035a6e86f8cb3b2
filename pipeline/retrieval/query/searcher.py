"""Search in an embedding file, with its dataset and the models that embed queries."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.composition import compose, require_composable
from pipeline.retrieval.query import SIDES, default_side
from pipeline.retrieval.query.embedded_dataset import EmbeddedDataset, Hit
from pipeline.retrieval.similarity import Vectors
from pipeline.store.errors import WrongUsage
from pipeline.store.objects.urls import url_of
from pipeline.store.one_or_many import texts_of
from pipeline.store.progress import QUIET, Monitor

if TYPE_CHECKING:
    from pipeline.images.given_pictures import GivenPicture
    from pipeline.retrieval.query.ensemble_models import EnsembleModels
    from pipeline.retrieval.query.query_models import QueryModels

Log = Callable[[str], None]

Encode = Callable[[Sequence[str]], Any]
"""An encoder of one's own: n sentences or words -> n rows, of caption features or embeddings."""

_ENCODED = "the encoder's result"


class Searcher:
    """Finds the images or sentences of an embedding file that are nearest to a query.

    Models are loaded on first use and cached. A query by the id of an embedded image needs neither
    head nor encoder. Not thread-safe.

    Parameters
    ----------
    embeddings : str or Path. The file.
    dataset : str or Path. Folder of the dataset that was embedded.
    head : str, Path or None. Folder of the head that computed the file.
    encoder : str, Path, callable or None. Folder of the fitted sentence encoder that the head was
        fitted on, or a function from a list of texts to their rows: caption features for the head
        or, without a head, embeddings. Without an encoder, a query has no sentence or word; without
        either, it is an image id or a vector.
    members : sequence of tuple of 2 str or Path. For an ensemble: folders of head and encoder of
        each member, in the order of the file.
    weights : str or None. Weights of the image network, as for `pipeline extract`; None: as
        recorded in the head.
    split : str or None. Searched splits of the file, comma-separated; None: all.
    monitor : Monitor. Receives log lines.

    Attributes
    ----------
    embedded : EmbeddedDataset. Embedding file and dataset.

    Raises
    ------
    EmbeddingsError
        The file is missing or corrupt.

    Examples
    --------
    >>> searcher = pipeline.Searcher(
    ...     "data/embeddings/mine/qian2018-baseline.h5",
    ...     dataset="data/mine",
    ...     head="data/heads/mine/qian2018-baseline",
    ...     encoder="data/text/mine/mean-glove-6b-50d.encoder",
    ... )
    >>> for hit in searcher.by_sentences("a red ball", top=2):
    ...     print(hit.rank, hit.id)
    1 scene-...
    2 scene-...
    """

    def __init__(
        self,
        embeddings: str | Path,
        *,
        dataset: str | Path,
        head: str | Path | None = None,
        encoder: str | Path | Encode | None = None,
        members: Sequence[tuple[str | Path, str | Path]] = (),
        weights: str | None = None,
        split: str | None = None,
        monitor: Monitor = QUIET,
    ) -> None:
        self.embedded: EmbeddedDataset = EmbeddedDataset(
            Path(embeddings), Path(dataset), monitor.log, split
        )
        self._encode: Encode | None = None
        if not isinstance(encoder, str | Path | None):
            self._encode, encoder = encoder, None
        self._head, self._encoder = _path(head), _path(encoder)
        self._members = [(Path(head), Path(encoder)) for head, encoder in members]
        self._weights, self._monitor = weights, monitor

    @property
    def similarity(self) -> str:
        """Name of the similarity of the scores."""
        return self.embedded.space.similarity

    def ids(self, of: str, where: str | Iterable[str] = ()) -> Sequence[str]:
        """Return the ids of the searched "images" or "sentences"."""
        return self.embedded.ids(SIDES[of], conditions_of(where))

    def default_of(self, image: bool, words: bool) -> str:
        """Return the default kind of result of a query, "images" or "sentences"."""
        return default_side(image, words) if len(self.embedded.space.caption_ids) else "images"

    @cached_property
    def models(self) -> "QueryModels | EnsembleModels":
        """Models that embed queries."""
        # Here, since they import torch, which takes seconds.
        from pipeline.retrieval.query.ensemble_models import EnsembleModels
        from pipeline.retrieval.query.query_models import QueryModels

        if self._members:
            return EnsembleModels(
                self.embedded.space, self.embedded.file, self._members, self._weights
            )
        return QueryModels(
            self.embedded.space,
            self.embedded.file,
            head=self._head,
            encoder=self._encoder,
            weights=self._weights,
        )

    @overload  # a str is an Iterable[str] too, and the first that fits is meant
    def by_sentences(  # type: ignore[overload-overlap]
        self,
        sentences: str,
        *,
        of: str = ...,
        top: int = ...,
        around_mean: int | None = ...,
        approximate: bool = ...,
        where: str | Iterable[str] = ...,
        log: Log | None = ...,
    ) -> list[Hit]: ...
    @overload
    def by_sentences(
        self,
        sentences: Iterable[str],
        *,
        of: str = ...,
        top: int = ...,
        around_mean: int | None = ...,
        approximate: bool = ...,
        where: str | Iterable[str] = ...,
        log: Log | None = ...,
    ) -> list[list[Hit]]: ...
    def by_sentences(
        self,
        sentences: str | Iterable[str],
        *,
        of: str = "images",
        top: int = 5,
        around_mean: int | None = None,
        approximate: bool = False,
        where: str | Iterable[str] = (),
        log: Log | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """Return the items nearest to a sentence, or to each of several sentences.

        Parameters
        ----------
        sentences : str or iterable of str. One sentence or several, each one line with at least one
            word.
        of : str. Kind of result, "images" or "sentences".
        top : int. Number of hits, at least 1.
        around_mean : int or None. Number of hits to re-sort by their distance to their mean before
            the best are returned; see `pipeline.retrieval.composition.around_the_mean`.
        approximate : bool. Search an approximate index, for millions of rows; it is built if
            missing.
        where : str or iterable of str. Conditions on the images, or on the images of the sentences,
            such as "split=test"; see `pipeline.retrieval.query.conditions.Condition`.
        log : callable or None. Receives a line on unknown words; None: the monitor.

        Returns
        -------
        list of Hit
            For a single sentence, best first; ties are sorted by id.
        list of list of Hit
            For several sentences.

        Raises
        ------
        WrongUsage
            `top` is below 1, or `around_mean` below `top`.
        EmbeddingsError, PipelineError
            A sentence cannot be embedded or compared, or the models did not compute the file.
        """
        self._check(top, around_mean)
        conditions = conditions_of(where)
        self.embedded.rows(SIDES[of], conditions)
        texts, alone = texts_of(sentences, "sentence")
        if not texts:
            return []
        rows = self._embeddings_of(texts, log)
        hits = self.embedded.nearest(
            rows, "captions", SIDES[of], top, None, around_mean, approximate, conditions
        )
        return hits[0] if alone else hits

    def by_image(
        self,
        image: "GivenPicture",
        *,
        minus: str | Iterable[str] = (),
        plus: str | Iterable[str] = (),
        of: str | None = None,
        top: int = 5,
        around_mean: int | None = None,
        approximate: bool = False,
        where: str | Iterable[str] = (),
        log: Log | None = None,
    ) -> list[Hit]:
        """Return the items nearest to an image, optionally minus some words and plus others.

        Parameters
        ----------
        image : str or image. Id of an embedded image, which is excluded from its own hits; or an
            image as for `pipeline.FeatureExtractor`: a path, the bytes of a file, a Pillow image,
            an array or a tensor.
        minus, plus : str or iterable of str. Words to subtract and to add; the similarity must be
            cosine.
        of : str or None. Kind of result, "images" or "sentences"; None: sentences for an image
            without words, otherwise images; images if the file has no captions.
        top, around_mean, approximate, where, log : see `by_sentences`.

        Returns
        -------
        list of Hit
            Hits, best first; ties are sorted by id.

        Raises
        ------
        WrongUsage
            See `by_sentences`.
        EmbeddingsError, UnusableImage, PipelineError
            The image or a word cannot be embedded or compared.
        """
        less, more = (texts_of(words, "word")[0] for words in (minus, plus))
        words = [*less, *more]
        side = SIDES[of or self.default_of(image=True, words=bool(words))]
        self._check(top, around_mean)
        if words:
            require_composable(self.similarity)
        conditions = conditions_of(where)
        ids = self.embedded.ids(side, conditions)
        query = self._embedding_of(image)
        if words:
            vectors = self._embeddings_of(words, log)
            query = compose(query[0], vectors[: len(less)], vectors[len(less) :])[None]
        query_id = image if side == "images" and isinstance(image, str) and image in ids else None
        (hits,) = self.embedded.nearest(
            query, "images", side, top, query_id, around_mean, approximate, conditions
        )
        return hits

    def by_vector(
        self,
        vector: "npt.ArrayLike",
        *,
        side: str = "sentences",
        of: str = "images",
        top: int = 5,
        around_mean: int | None = None,
        approximate: bool = False,
        where: str | Iterable[str] = (),
    ) -> list[Hit]:
        """Return the items nearest to an embedding of your own, such as a mean of several.

        Parameters
        ----------
        vector : array_like. (dim,), or (parts, dim) if the similarity compares sets of vectors.
        side : str. What the vector embeds, "sentences" or "images", for an asymmetric similarity.
        of, top, around_mean, approximate, where : see `by_sentences`.

        Returns
        -------
        list of Hit
            Hits, best first; ties are sorted by id.

        Raises
        ------
        WrongUsage
            See `by_sentences`.
        EmbeddingsError
            The vector is not finite, or has another shape than the embeddings of the file.
        """
        self._check(top, around_mean)
        query = self._query_rows([vector], 1, "the vector")
        (hits,) = self.embedded.nearest(
            query, SIDES[side], SIDES[of], top, None, around_mean, approximate, conditions_of(where)
        )
        return hits

    def _embeddings_of(self, texts: Sequence[str], log: Log | None) -> Vectors:
        """Return (texts, dim) or (texts, parts, dim) float32."""
        if self._encode is None:
            return self.models.embed_sentences(texts, log or self._monitor.log)
        rows = self._encode(texts)
        if self._head is not None:
            # An ensemble has members in place of a head.
            rows = self.models.embed_rows(_floats(rows, _ENCODED))  # type: ignore[union-attr]
        return self._query_rows(rows, len(texts), _ENCODED)

    def _query_rows(self, given: Any, number: int, what: str) -> Vectors:
        """Return embeddings of one's own as float32; raise unless they are as those of the file."""
        stored = self.embedded.space.image_embeddings
        rows = _floats(given, what)
        shape = (*rows.shape[:1], *rows.shape[2 if len(stored.shape) == 3 else 1 :])
        if rows.ndim != len(stored.shape) or shape != (number, stored.shape[-1]):
            axes = "(parts, dim)" if len(stored.shape) == 3 else "(dim,)"
            raise EmbeddingsError(
                f"{what} has shape {rows.shape[1:] if what == 'the vector' else rows.shape}; "
                f"expected {axes} with dim {stored.shape[-1]} for each of {number}, as in "
                f"{self.embedded.file}: pass embeddings by the model that made the file"
            )
        if not np.isfinite(rows).all():
            raise EmbeddingsError(f"{what} is not finite; pass finite numbers")
        return rows

    def _embedding_of(self, image: "GivenPicture") -> Vectors:
        """Return (1, dim) or (1, parts, dim) float32."""
        space = self.embedded.space
        if isinstance(image, str):
            if image in space.image_ids:
                return self.embedded.stored(image)
            if url_of(image) is None and not Path(image).is_file():
                raise EmbeddingsError(
                    f"{image!r} is neither the id of an image in {self.embedded.file} nor a file; "
                    f"pass one of them (ids there look like {space.image_ids[0]!r})"
                )
            image = Path(image)
        # Here, since it imports torch.
        from pipeline.images.given_pictures import picture_of

        return self.models.embed_picture(picture_of(image))

    def _check(self, top: int, around_mean: int | None) -> None:
        if top < 1:
            raise WrongUsage(f"`top={top}` is below 1; pass a positive number")
        if around_mean is not None:
            if around_mean < top:
                raise WrongUsage(
                    f"`around_mean={around_mean}` is fewer than `top={top}`; raise "
                    "`around_mean=...` or lower `top=...`"
                )
            require_composable(self.similarity)


def conditions_of(where: str | Iterable[str]) -> tuple[str, ...]:
    """Return one condition, or several, as a tuple."""
    return (where,) if isinstance(where, str) else tuple(where)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _floats(given: Any, what: str) -> Vectors:
    """Return an array as float32; raise if it has no numbers."""
    try:
        return np.asarray(given, np.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EmbeddingsError(f"{what} is not an array of numbers: {error}") from error
