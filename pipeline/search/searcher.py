"""An embedding file that can be asked: its dataset, and the models that embed queries, kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from PIL import Image

from pipeline.datasets.manifest import MANIFEST_FILE, Manifest, read_manifest
from pipeline.hashing import sha256_of_file
from pipeline.heads.trained_head import TrainedHead
from pipeline.images.network import RecipeNetwork
from pipeline.retrieval.approximate import ApproximateIndex, open_index
from pipeline.retrieval.composition import compose, listed, require_composable
from pipeline.retrieval.embeddings import read_embeddings
from pipeline.retrieval.search import Gallery, SearchError, SideName, Vectors, nearest
from pipeline.search.query_embedding import (
    embed_encoded,
    embed_seen,
    head_of,
    open_encoder,
    open_network,
    require_lines,
)
from pipeline.text.encoders.base import CaptionEncoder

Tell = Callable[[str], None]

SIDES: dict[str, SideName] = {"images": "images", "sentences": "captions"}
"""The sides of an embedding file by the names that a user knows."""


def default_of(picture: bool, words: bool) -> str:
    """Return what of `SIDES` a query looks for unless told: by a picture alone, sentences.

    Parameters
    ----------
    picture : whether it asks with a picture, rather than a sentence.
    words : whether words are taken from the picture or added.
    """
    return "sentences" if picture and not words else "images"


@dataclass(frozen=True)
class Sources:
    """An embedding file and what belongs to it.

    Attributes
    ----------
    embeddings, head, dataset, encoder : the file, and the folders of the head that made it, of
        the dataset that was embedded and of the fitted sentence encoder.
    weights : of the image network, as `pipeline.search.query_embedding.open_network` takes them.
    """

    embeddings: Path
    head: Path
    dataset: Path
    encoder: Path
    weights: str | None = None


@dataclass(frozen=True)
class Hit:
    """One answer.

    Attributes
    ----------
    id : of an image or a caption.
    score : its similarity to the query; greater is nearer.
    image : id of the image, or of the caption's image.
    text : the caption, or the image's first one, or "".
    """

    id: str
    score: float
    image: str
    text: str


class Searcher:
    """Answers queries of one embedding file.

    What a query needs is loaded when it is first needed, and kept; the stored embedding of an
    image needs neither head nor encoder. Not for several threads at once.

    Attributes
    ----------
    sources : as given.
    space : the embeddings.
    """

    def __init__(self, sources: Sources, tell: Tell) -> None:
        """Read the embedding file.

        Parameters
        ----------
        tell : called with one line about each thing that a user should know.

        Raises
        ------
        EmbeddingsError
        """
        self.sources, self._tell = sources, tell
        self.space = read_embeddings(sources.embeddings)
        self._encoder: CaptionEncoder | None = None
        self._unknown: set[tuple[str, str]] = set()
        self._galleries: dict[SideName, Gallery] = {}
        self._indexes: dict[SideName, ApproximateIndex] = {}

    @cached_property
    def manifest(self) -> Manifest:
        """The dataset; it is told if that has changed since it was embedded.

        Raises
        ------
        DatasetError
        """
        folder = self.sources.dataset
        manifest = read_manifest(folder)
        made_from = self.space.provenance.get("manifest_sha256")
        if made_from not in (None, sha256_of_file(folder / MANIFEST_FILE)):
            self._tell(f"{folder} has changed since it was embedded; its captions may have, too")
        return manifest

    @cached_property
    def head(self) -> TrainedHead:
        """The head that made the file; see `pipeline.search.query_embedding.head_of`."""
        return head_of(self.space, self.sources.embeddings, self.sources.head)

    @cached_property
    def network(self) -> RecipeNetwork:
        """The network of pictures; see `pipeline.search.query_embedding.open_network`."""
        return open_network(self.head, self.sources.weights)

    def keep_encoder(self, likely: Sequence[str]) -> None:
        """Load the sentence encoder for many queries.

        Parameters
        ----------
        likely : texts with the words that queries will have. A query with words whose vectors
            have not been read is answered as well, after its own reading of them.

        Raises
        ------
        SearchError, PipelineError
            See `pipeline.search.query_embedding.open_encoder`.
        """
        self._encoder = open_encoder(self.head, self.sources.encoder, likely)

    def gallery(self, side: SideName) -> Gallery:
        """Return one side of the file, all of which the dataset has.

        Raises
        ------
        SearchError
            The dataset lacks an id.
        """
        if side not in self._galleries:
            gallery = Gallery.of(self.space, side)
            if unknown_ids := [one for one in gallery.ids if one not in self._about[side]]:
                raise SearchError(
                    f"{len(unknown_ids)} of the {len(gallery.ids)} {side} of the embedding file "
                    f"are not in {self.sources.dataset / MANIFEST_FILE}, first "
                    f"{unknown_ids[:5]}; give the dataset that was embedded "
                    f"({self.space.provenance.get('dataset', 'its name is not recorded')}) with "
                    "--dataset"
                )
            self._galleries[side] = gallery
        return self._galleries[side]

    def of_sentences(self, texts: Sequence[str], tell: Tell | None = None) -> Vectors:
        """Embed sentences, or words; `tell` is told of those that the encoder does not know.

        Returns
        -------
        (texts, dim) or (texts, parts, dim) float32.

        Raises
        ------
        SearchError, PipelineError
            See `pipeline.search.query_embedding.require_lines`, `open_encoder` and `embed_encoded`.
        """
        require_lines(texts)
        return embed_encoded(self.head, self._encoder_for(texts), texts, tell or self._tell)

    def of_stored(self, image_id: str) -> Vectors:
        """Return the stored embedding of an image as one query.

        Returns
        -------
        (1, dim) or (1, parts, dim) float32.

        Raises
        ------
        SearchError
            There is no such id.
        """
        try:
            at = self.space.image_ids.index(image_id)
        except ValueError:
            raise SearchError(
                f"{image_id!r} is no id of an image in {self.sources.embeddings} (ids there look "
                f"like {self.space.image_ids[0]!r})"
            ) from None
        return self.space.image_embeddings[[at]]

    def of_picture(self, picture: Path | Image.Image) -> Vectors:
        """Embed a picture, a file or decoded, as one query.

        Returns
        -------
        (1, dim) or (1, parts, dim) float32.

        Raises
        ------
        SearchError, UnusableImage, PipelineError
            See `pipeline.search.query_embedding.open_network` and `embed_seen`.
        """
        return embed_seen(self.head, self.network, [picture])

    def composed(
        self,
        picture: Vectors,
        minus: Sequence[str],
        plus: Sequence[str],
        tell: Tell | None = None,
    ) -> Vectors:
        """Return a picture's query less some words and plus others.

        Without words it is the picture's own; so it is of any similarity.

        Parameters
        ----------
        picture : (1, dim) or, without words, (1, parts, dim) float32.
        minus, plus : the words.
        tell : as in `of_sentences`.

        Returns
        -------
        As `picture`.

        Raises
        ------
        SearchError
            The similarity is not cosine, a word is unknown, or all cancel.
        """
        words = [*minus, *plus]
        if not words:
            return picture
        require_composable(self.space.similarity)
        vectors = self.of_sentences(words, tell)
        return compose(picture[0], vectors[: len(minus)], vectors[len(minus) :])[None]

    def answers(
        self,
        queries: Vectors,
        asking: SideName,
        of: SideName,
        top: int,
        leave_out: str | None = None,
        around_mean: int | None = None,
        approximate: bool = False,
    ) -> list[list[Hit]]:
        """Return the nearest of each query, best first; ties stand in the order of the ids.

        Parameters
        ----------
        queries : (queries, dim) or (queries, parts, dim) float32, of the side `asking`.
        of : the side that is searched.
        top : how many are wanted.
        leave_out : an id that is no answer, such as the query's own.
        around_mean : re-sort so many by `pipeline.retrieval.composition.around_the_mean` first.
        approximate : look where the file's index leads; it is made if need be.

        Raises
        ------
        SearchError, EmbeddingsError
            See `pipeline.retrieval.search.nearest` and `pipeline.retrieval.approximate`.
        """
        if around_mean is not None:
            require_composable(self.space.similarity)
        gallery = self.gallery(of)
        number = max(top, around_mean or 0) + (leave_out is not None)
        if approximate:
            hits = self._index(of).nearest(queries, asking, number)
        else:
            hits = nearest(gallery, queries, asking, number)
        about = self._about[of]
        return [
            [Hit(one, score, *about[one]) for one, score in best[:top]]
            for best in listed(hits, gallery, leave_out, around_mean)
        ]

    @cached_property
    def _about(self) -> dict[SideName, dict[str, tuple[str, str]]]:
        """Image id and text of every image and caption of the dataset."""
        entries = self.manifest.entries
        return {
            "images": {e.id: (e.id, e.first_caption) for e in entries},
            "captions": {
                one: (e.id, text)
                for e in entries
                for one, text in zip(e.caption_ids, e.captions, strict=True)
            },
        }

    def _index(self, side: SideName) -> ApproximateIndex:
        if side not in self._indexes:
            self._indexes[side] = open_index(self.sources.embeddings, self.space, side, self._tell)
        return self._indexes[side]

    def _encoder_for(self, texts: Sequence[str]) -> CaptionEncoder:
        """Return the kept encoder if it has read all that there is of some texts' words."""
        kept = self._encoder
        if kept is not None and _missing(kept, texts) <= self._unknown:
            return kept
        read = open_encoder(self.head, self.sources.encoder, texts)
        self._unknown |= _missing(read, texts)
        return read


def _missing(encoder: CaptionEncoder, texts: Sequence[str]) -> set[tuple[str, str]]:
    """Return the words that an encoder does not know, each with the name of the part."""
    reports = encoder.reports(texts).items()
    return {(part, word) for part, report in reports for word, _ in report.oov_words}
