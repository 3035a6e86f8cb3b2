"""Fisher vectors of captions under one or several codebooks, concatenated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from pipeline.store.files import created_by
from pipeline.store.hashing import sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.encoders.base import Encoder, Fitting, VocabularyReport, Words, report_on_texts
from pipeline.text.encoders.options import WordOptions, encoder_option, vectors_option
from pipeline.text.fisher.codebook import FITTED_BY, Codebook, fit_codebook, load_codebook
from pipeline.text.fisher.gradients import WordGradients, power_and_l2, word_gradients
from pipeline.text.fisher.mixture import MixtureKind
from pipeline.text.tokenizers.by_name import words_in
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vectors import WordVectors, lists_general_words, load_vectors

_NUMBERS_AT_ONCE = 1 << 21  # numbers per block of rows: 8 MiB fit into the caches


@dataclass(frozen=True)
class FisherOptions(WordOptions):
    """Options of `FisherVector`; codebooks are fitted as `fit_codebook` does."""

    mixtures: tuple[MixtureKind, ...] = encoder_option(())
    vectors: str = vectors_option()
    components: int = encoder_option(
        30,
        key=("codebooks", "components"),
        least=1,
        help="Codebooks: components of each mixture.  [default: 30]",
    )
    sample: int = encoder_option(
        300_000,
        key=("codebooks", "sample"),
        least=1,
        help="Codebooks: number of sampled words.  [default: 300000]",
    )
    seed: int = encoder_option(
        0, key=("codebooks", "seed"), least=0, help="Codebooks: seed.  [default: 0]"
    )
    codebook_words: Literal["source", "training", None] = encoder_option(
        None,
        key=("codebooks", "words"),
        choices=("source", "training"),
        help="Codebooks: fit on all words of the vectors, or on those of the training captions.  "
        "[default: source; for vectors of `pipeline vectors`, training]",
    )

    def settled(self) -> "FisherOptions":
        words = self.codebook_words
        if words is None:
            words = "source" if lists_general_words(self.vectors) else "training"
        return replace(super().settled(), codebook_words=words)

    @property
    def fitted_on_captions(self) -> bool:
        return self.codebook_words == "training"

    def words_of(self, texts: Sequence[str]) -> set[str]:
        return words_in(texts, self.words)


_preset = partial(FisherOptions, kind="fisher")


class FisherVector(Encoder):
    """Fisher vector of a caption's words under each of several mixtures.

    Klein et al. 2015: L2-normalised word vectors are whitened and L2-normalised again (times 10
    for mixtures with Laplacians); the Fisher vector is signed-square-rooted and L2-normalised.
    With several codebooks, each one's vector is L2-normalised separately and they are concatenated
    in the given order (their "GMM+HGLMM"). Tokens without a word vector are ignored, also in the
    word count T; a caption without a known token becomes zero.
    """

    Options: ClassVar = FisherOptions
    presets: ClassVar = (
        _preset("fv-gmm", mixtures=("gmm",)),
        _preset("fv-lmm", mixtures=("lmm",)),
        _preset("fv-hglmm", mixtures=("hglmm",)),
        _preset("fv-gmm-hglmm", mixtures=("gmm", "hglmm")),
    )

    def __init__(
        self,
        codebooks: tuple[Codebook, ...],  # fitted on `vectors`, or on others of the same source
        vectors: WordVectors,  # of the words in captions only: each has its gradients in memory
        tokenizer: Tokenizer,
    ) -> None:
        """Store the parts; the name is `fv-<kinds>-<vectors>`, such as "fv-gmm-hglmm-<vectors>"."""
        if not codebooks:
            raise EncoderError("a Fisher vector needs a codebook, found none; fit one")
        kinds = [codebook.metadata.kind for codebook in codebooks]
        for kind, codebook in zip(kinds, codebooks, strict=True):
            codebook.require_vectors(vectors, f"the {kind} codebook")
        self.codebooks, self.vectors, self.tokenizer = codebooks, vectors, tokenizer
        self.name = "-".join(("fv", *kinds, vectors.name))
        self.dim = sum(2 * c.mixture.components * c.mixture.dim for c in codebooks)
        fitted = {"vectors": vectors.sha256, "codebooks": [c.sha256 for c in codebooks]}
        self.weights = f"{vectors.name}, {'+'.join(kinds)}", sha256_of_json(fitted)
        self.trained_on = vectors.trained_on
        self.memory = 4 * len(vectors.words) * self.dim  # at most, of all words' gradients

    @classmethod
    def fit(cls, options: FisherOptions, folder: Path, fitting: Fitting, words: Words) -> Self:
        vectors = load_vectors(options.vectors, words)
        for kind in options.mixtures:
            if not (path := _codebook_file(folder, kind)).exists():
                _codebook(kind, options, vectors, fitting).save(path)
        return cls._of(options, folder, vectors)

    @classmethod
    def load(cls, options: FisherOptions, folder: Path, words: Words) -> Self:
        return cls._of(options, folder, load_vectors(options.vectors, words))

    @classmethod
    def _of(cls, options: FisherOptions, folder: Path, vectors: WordVectors) -> Self:
        files = [_codebook_file(folder, kind) for kind in options.mixtures]
        return cls(tuple(load_codebook(f, vectors) for f in files), vectors, options.words)

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "fisher vector",
            "tokens": self.tokenizer.to_json(),
            "vectors": self.vectors.name,
            "codebooks": [_account(codebook) for codebook in self.codebooks],
            "normalisation": "signed square root, then norm 1, for each codebook",
            "oov": "ignored, also in the number of words; zero vector if no token is known",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32: norm 1 for each codebook, or 0."""
        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        step = max(1, _NUMBERS_AT_ONCE // self.dim)
        for start in range(0, len(texts), step):
            self._encode_into(rows[start : start + step], texts[start : start + step])
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        return {self.name: report_on_texts(texts, self.tokenizer, self.vectors.index)}

    def _encode_into(self, rows: npt.NDArray[np.float32], texts: Sequence[str]) -> None:
        index, tokenize = self.vectors.index, self.tokenizer.tokenize
        positions = [[index[t] for t in tokenize(text) if t in index] for text in texts]
        lengths = np.array([*map(len, positions)], dtype=np.int64)
        words = np.array([word for row in positions for word in row], dtype=np.int64)
        column = 0
        for gradients in self._gradients:
            part = rows[:, column : column + 2 * gradients.components * gradients.dim]
            power_and_l2(gradients.fisher_vectors(words, lengths, part))
            column += part.shape[1]

    @cached_property
    def _gradients(self) -> tuple[WordGradients, ...]:
        return tuple(
            word_gradients(codebook.mixture, codebook.transform(self.vectors.matrix))
            for codebook in self.codebooks
        )


def _account(codebook: Codebook) -> dict[str, Any]:
    """Return settings and data of a codebook's fit, without software versions."""
    fitted_to = codebook.metadata.to_json()
    del fitted_to["created_by"]
    return {**fitted_to, "components": codebook.mixture.components}


def _codebook_file(folder: Path, kind: MixtureKind) -> Path:
    return folder / f"codebook-{kind}.safetensors"


def _codebook(
    kind: MixtureKind, options: FisherOptions, vectors: WordVectors, fitting: Fitting
) -> Codebook:
    """Return the codebook in the folder of shared ones, or fit it and save it there."""
    words = None
    if options.codebook_words == "training":
        words = (fitting.words_of or options.words_of)(fitting.training)
    if fitting.codebooks is not None:
        # A name on the hub has a slash.
        name = f"{kind}-{options.components}-{vectors.name.replace('/', '--')}"
    else:
        name = f"codebook-{_hash_of_fit(kind, options, vectors, words)}"
    folder = fitting.codebooks or fitting.work
    shared = folder and folder / f"{name}.safetensors"
    if shared is not None and shared.exists():
        fitting.monitor.log(f"using the {kind} codebook of {shared}")
        return load_codebook(shared, vectors)
    codebook = fit_codebook(
        load_vectors(options.vectors, words),
        kind,
        options.components,
        seed=options.seed,
        sample=options.sample,
        progress=fitting.monitor.log,
    )
    if shared is not None:
        shared.parent.mkdir(parents=True, exist_ok=True)
        codebook.save(shared)
    return codebook


def _hash_of_fit(
    kind: MixtureKind, options: FisherOptions, vectors: WordVectors, words: set[str] | None
) -> str:
    """Return 16 hex digits of everything that determines the bytes of a codebook."""
    fitted_on = [vectors.name, vectors.sha256, words and sorted(words)]
    how = [kind, options.components, options.sample, options.seed, created_by(*FITTED_BY)]
    return sha256_of_json([fitted_on, how])[:16]
