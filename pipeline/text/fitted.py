"""A fitted encoder as a folder: plan, vocabularies, codebooks and principal components."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.errors import UnknownName
from pipeline.store.one_or_many import texts_of
from pipeline.store.schema import SchemaError, decode_format
from pipeline.text import EncoderError, FittedFileError
from pipeline.text.encoder_plans import EncoderPlan, EncoderSpec
from pipeline.text.encoders.base import CaptionEncoder, VocabularyReport
from pipeline.text.encoders.concatenation import Concatenation
from pipeline.text.encoders.pca import Pca
from pipeline.text.fisher.codebook import Codebook, load_codebook
from pipeline.text.fisher.mixture import MixtureKind
from pipeline.text.lexicon import Lexicon
from pipeline.text.pca.components import PrincipalComponents, load_pca
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vectors import WordVectors
from pipeline.text.vocabulary import Vocabulary, load_vocabulary

ENCODER_FILE, PCA_FILE = "encoder.json", "projection.safetensors"
FORMAT, FORMAT_VERSION = "pipeline-encoder", 1


def load_encoder(folder: str | Path, texts: Sequence[str] | None = None) -> "LoadedEncoder":
    """Load a fitted encoder.

    Parameters
    ----------
    folder : str or Path. Folder that `pipeline text` saved next to its shards, `<out>.encoder`.
    texts : sequence of str or None. Captions to encode, if known: word vectors are then loaded
        once, for their words only. None: vectors are loaded whenever captions have new words,
        which is fast with the packaged vectors and those of `pipeline vectors`, and otherwise a
        pass over the file.

    Returns
    -------
    LoadedEncoder
        Its `encode` accepts one caption and returns (dim,) float32, or several and returns
        (captions, dim).

    Raises
    ------
    EncoderError
        The folder has no encoder of this format version, or a fitted file is missing or damaged.
    VectorsError
        The word vectors are missing or damaged.

    Examples
    --------
    >>> encoder = pipeline.load_encoder("data/text/mine/mean-glove-6b-50d.encoder")
    >>> encoder.encode("a dog runs").shape, encoder.encode(["a dog runs", "a cat"]).shape
    ((50,), (2, 50))
    """
    folder = Path(folder)
    plan = load_plan(folder)
    captions = None if texts is None else texts_of(texts, "caption")[0]
    return LoadedEncoder(FittedFolder(folder, plan, Lexicon(plan)), captions)


def load_plan(folder: Path) -> EncoderPlan:
    """Load the plan of a fitted encoder."""
    description = read_description(folder)
    try:
        return EncoderPlan.from_json(description.get("plan"))
    except (EncoderError, UnknownName, SchemaError) as error:
        raise FittedFileError(
            f"{folder / ENCODER_FILE}: its plan: {error}; fit it again"
        ) from error


def read_description(folder: Path) -> dict[str, Any]:
    """Load `encoder.json`: the plan, and the captions that it was fitted on."""
    path = folder / ENCODER_FILE
    try:
        return decode_format(path.read_bytes(), dict[str, Any], FORMAT, FORMAT_VERSION)
    except OSError as error:
        raise FittedFileError(
            f"{path} cannot be read ({error.strerror}): {folder} has no fitted encoder; run "
            "`pipeline text` first"
        ) from error
    except SchemaError as error:
        raise FittedFileError(
            f"{path} is damaged or of another kind ({error}); fit the encoder again"
        ) from error


def vocabulary_of(folder: Path, spec: EncoderSpec) -> Vocabulary:
    """Load the vocabulary of one of a folder's encoders."""
    return load_vocabulary(vocabulary_file(folder, spec))


def vocabulary_file(folder: Path, spec: EncoderSpec) -> Path:
    """Return the path of the vocabulary of one of a folder's encoders."""
    return folder / f"vocabulary-{spec.recorded_name}.json"


def codebook_file(folder: Path, kind: MixtureKind) -> Path:
    """Return the path of a folder's codebook of one kind."""
    return folder / f"codebook-{kind}.safetensors"


class FittedFolder:
    """Builds encoders from a folder's fitted files and word vectors."""

    def __init__(self, folder: Path, plan: EncoderPlan, lexicon: Lexicon) -> None:
        """Store a folder with all files of the plan, without reading them."""
        self.lexicon = lexicon
        self._folder, self._plan = folder, plan
        self._basis: PrincipalComponents | None = None

    def encoder(self, words: Collection[str]) -> CaptionEncoder:
        """Return the plan's encoder for captions with these words."""
        return self.with_pca(self.without_pca(self.vectors_of(words)))

    def vectors_of(self, words: Collection[str]) -> WordVectors | None:
        """Load the vectors of some words; None if no encoder needs them."""
        if any(spec.computes_with_vectors for spec in self._plan.specs):
            return self.lexicon.vectors_of(words)
        return None

    def with_pca(self, encoder: CaptionEncoder) -> CaptionEncoder:
        """Return the projection of `without_pca` on the plan's principal components, if any."""
        if self._plan.pca is None:
            return encoder
        if self._basis is None:
            self._basis = load_pca(self._folder / PCA_FILE, encoder)
        return Pca(encoder, self._basis)

    def without_pca(self, vectors: WordVectors | None) -> CaptionEncoder:
        """Return the encoder before the projection on principal components."""
        encoders = tuple(self._encoder(spec, vectors) for spec in self._plan.specs)
        return encoders[0] if len(encoders) == 1 else Concatenation(encoders)

    def _encoder(self, spec: EncoderSpec, vectors: WordVectors | None) -> CaptionEncoder:
        parts = _Parts(self._folder, spec, self.lexicon, vectors)
        encoder: CaptionEncoder = import_module(spec.module).assemble(parts)
        return encoder


@dataclass(frozen=True, eq=False)
class _Parts:
    """The parts of one encoder, from a folder and word vectors."""

    folder: Path
    spec: EncoderSpec
    lexicon: Lexicon
    given: WordVectors | None

    @property
    def tokenizer(self) -> Tokenizer:
        return self.lexicon.tokenizer_of(self.spec)

    @property
    def vectors(self) -> WordVectors:
        assert self.given is not None
        return self.given

    def vocabulary(self) -> Vocabulary:
        return vocabulary_of(self.folder, self.spec)

    def codebooks(self) -> tuple[Codebook, ...]:
        files = (codebook_file(self.folder, kind) for kind in self.spec.mixtures)
        return tuple(load_codebook(file, self.vectors) for file in files)

    def option(self, name: str) -> Any:
        return getattr(self.spec, name)


class LoadedEncoder:
    """A fitted encoder for one caption or several, from `load_encoder`; a `CaptionEncoder`."""

    def __init__(self, fitted: FittedFolder, texts: Sequence[str] | None) -> None:
        self._fitted = fitted
        # All vectors of a source may not fit into memory, and a fastText model has vectors for any
        # word: if the captions are unknown, the vectors of all words so far are loaded, and loaded
        # again when there are new words.
        self._words: set[str] | None = set() if texts is None else None
        self._encoder = fitted.encoder(fitted.lexicon.words_of(texts or ()))

    @property
    def name(self) -> str:
        return self._encoder.name

    @property
    def dim(self) -> int:
        return self._encoder.dim

    @property
    def weights(self) -> tuple[str, str]:
        return self._encoder.weights

    @property
    def trained_on(self) -> tuple[str, ...]:
        return self._encoder.trained_on

    @property
    def memory(self) -> int:
        return self._encoder.memory

    def recipe(self) -> dict[str, Any]:
        return self._encoder.recipe()

    def encode(self, texts: str | Iterable[str]) -> npt.NDArray[np.float32]:
        """Encode one caption, or several; a row depends on its text alone, bit for bit.

        Parameters
        ----------
        texts : str or iterable of str. One caption, or several.

        Returns
        -------
        (dim,) float32 of a single caption, (n, dim) float32 of several; all finite.
        """
        captions, alone = texts_of(texts, "caption")
        rows = self._for(captions).encode(captions)
        return rows[0] if alone else rows

    def reports(self, texts: str | Iterable[str]) -> dict[str, VocabularyReport]:
        """Return the report on out-of-vocabulary words of each part, by name."""
        captions, _ = texts_of(texts, "caption")
        return self._for(captions).reports(captions)

    def _for(self, texts: Sequence[str]) -> CaptionEncoder:
        if self._words is not None:
            words = self._fitted.lexicon.words_of(texts)
            if not words <= self._words:
                self._words |= words
                self._encoder = self._fitted.encoder(self._words)
        return self._encoder
