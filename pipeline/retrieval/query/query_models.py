"""Models that embed queries for an embedding file; others than those of the file are rejected."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from pipeline.heads.finetuning import WEIGHTS_FILE
from pipeline.heads.trained_head import HEAD_FILE, TrainedHead, load_head
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.csls import as_queries, is_corrected
from pipeline.retrieval.quantised.codes import shortened
from pipeline.retrieval.query.picture_features import PictureFeatures, open_features
from pipeline.retrieval.query.query_embedding import embed_pictures, embed_sentences
from pipeline.retrieval.query.query_sentences import require_lines
from pipeline.retrieval.search import SideName
from pipeline.retrieval.similarity import Vectors
from pipeline.store.hashing import canonical_json
from pipeline.text.caption_source import caption_header
from pipeline.text.encoders.base import CaptionEncoder, unknown_to_all
from pipeline.text.fitted import load_encoder


class WithProvenance(Protocol):
    """Output of a head, such as embeddings or a localization."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Provenance of the output, as JSON values."""


class QueryModels:
    """Head, sentence encoder and image network of one embedding file.

    Each is loaded once, on first use. Not thread-safe.
    """

    def __init__(
        self,
        embeddings: WithProvenance,
        file: Path,
        *,
        head: Path | None,
        encoder: Path | None,
        weights: str | None,
    ) -> None:
        """Store the paths of the models; queries that need a missing one raise."""
        self._embeddings, self._file = embeddings, file
        self._head, self._encoder, self._weights = head, encoder, weights
        self._kept: CaptionEncoder | None = None
        self._unknown: set[tuple[str, str]] = set()

    @cached_property
    def head(self) -> TrainedHead:
        """The head that computed the file."""
        return head_of(self._embeddings, self._file, self._head)

    @cached_property
    def network(self) -> PictureFeatures:
        """The image network. Tuned weights are stored next to the head."""
        weights = self._weights
        if weights is None and self._head is not None and self.head.finetuning is not None:
            weights = str(self._head / WEIGHTS_FILE)
        return open_network(self.head, weights)

    def keep_encoder(self, likely: Sequence[str]) -> None:
        """Load the sentence encoder for many queries; one with other words is slower."""
        self._kept = self._open_encoder(likely)

    def embed_sentences(self, texts: Sequence[str], log: Callable[[str], None]) -> Vectors:
        """Embed sentences or words, (texts, dim) or (texts, parts, dim) float32."""
        require_lines(texts)
        rows = embed_sentences(self.head, self._encoder_for(texts), texts, log)
        return self._as_stored(rows, "captions")

    def embed_rows(self, rows: Vectors) -> Vectors:
        """Embed caption features (texts, *row_shape) of an encoder of one's own."""
        return self._as_stored(self.head.embed_captions(rows), "captions")

    def without_known_word(self, texts: Sequence[str]) -> set[int]:
        """Return the positions of the texts without a known word."""
        return unknown_to_all(self._encoder_for(texts).reports(texts).values())

    def embed_picture(self, picture: Path | Image.Image) -> Vectors:
        """Embed an image, a path or decoded, as one query, (1, dim) or (1, parts, dim) float32."""
        return self._as_stored(embed_pictures(self.head, self.network, [picture]), "images")

    @property
    def corrected(self) -> bool:
        """Whether queries have the two dimensions of `pipeline.retrieval.csls`."""
        return is_corrected(self._embeddings.provenance)

    def _as_stored(self, rows: Vectors, side: SideName) -> Vectors:
        """Return queries with the dimensions of the file."""
        dim = self._embeddings.provenance.get("dim")
        rows = rows if dim is None else shortened(rows, dim, self.head.head.similarity)
        return as_queries(rows, side) if self.corrected else rows

    def _open_encoder(self, texts: Sequence[str]) -> CaptionEncoder:
        head = self.head
        if self._encoder is None:
            raise EmbeddingsError(
                "sentences and words are embedded by the fitted sentence encoder, whose folder "
                "is missing; pass it (`encoder=...`)"
            )
        return open_encoder(head, self._encoder, texts)

    def _encoder_for(self, texts: Sequence[str]) -> CaptionEncoder:
        """Return the cached encoder if it covers all words that have a vector."""
        cached = self._kept
        if cached is not None and _missing(cached, texts) <= self._unknown:
            return cached
        read = self._open_encoder(texts)
        self._unknown |= _missing(read, texts)
        return read


def head_of(embeddings: WithProvenance, path: Path, folder: Path | None) -> TrainedHead:
    """Load the head of an embedding file; raise unless this head computed the file."""
    in_file = embeddings.provenance
    if "ensemble" in in_file:
        raise EmbeddingsError(
            f"{path} is an ensemble, for which no single head can embed a query; search with the "
            "id of one of its images, or search the embedding file of one of its members"
        )
    if folder is None:
        raise EmbeddingsError(
            f"a query of {path} is embedded by the head that made it, whose folder is missing; "
            "pass it (`head=...`), or search with the id of one of its images"
        )
    trained = load_head(folder)
    again = (
        f"recompute it with `pipeline embed --experiment {trained.experiment}`, or pass the head "
        "that computed the embedding file"
    )
    in_head = trained.provenance
    if not in_file.keys() & in_head.keys():
        raise EmbeddingsError(
            f"{path} does not record its head (its attribute 'provenance' names none), so "
            f"queries embedded by {folder} may be in another space; {again}"
        )
    # As JSON, where a tuple is a list.
    if different := [
        _difference(name, in_file.get(name), value)
        for name, value in in_head.items()
        if canonical_json(in_file.get(name)) != canonical_json(value)
    ]:
        raise EmbeddingsError(
            f"{path} was not computed by the head that {folder / HEAD_FILE} describes now: it "
            f"differs in {', '.join(different)}; {again}"
        )
    return trained


def open_encoder(trained: TrainedHead, folder: Path, texts: Sequence[str] | None) -> CaptionEncoder:
    """Load a head's sentence encoder, for some texts or any; raise if it is another's."""
    fitted = load_encoder(folder, texts)
    side = trained.inputs.captions
    if (digest := caption_header(fitted, "").recipe_hash) != side.recipe_hash:
        raise EmbeddingsError(
            f"{folder} holds the encoder {fitted.name!r} (recipe hash {digest}), but the head of "
            f"{trained.experiment!r} was fitted on {side.name!r} (recipe hash {side.recipe_hash}); "
            "pass the folder that `pipeline text` wrote next to its caption features, or train "
            "again on features of this encoder"
        )
    return fitted


def open_network(trained: TrainedHead, weights: str | None = None) -> PictureFeatures:
    """Load the networks of a head's image features."""
    return open_features(trained.inputs.images, f"the head of {trained.experiment!r}", weights)


def _difference(name: str, in_file: Any, in_head: Any) -> str:
    """Return the name of a differing entry, with both values unless they are long."""
    if isinstance(in_file, dict) or isinstance(in_head, dict):
        return name
    values = ["nothing" if value is None else str(value)[:40] for value in (in_file, in_head)]
    return f"{name} ({values[0]} in the file, {values[1]} in the head)"


def _missing(encoder: CaptionEncoder, texts: Sequence[str]) -> set[tuple[str, str]]:
    """Return the words unknown to an encoder, each with the name of its block."""
    reports = encoder.reports(texts).items()
    return {(block, word) for block, report in reports for word, _ in report.oov_words}
