"""A fitted encoder as a folder: its plan, vocabularies, codebooks and projection."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.files import write_json
from pipeline.hashing import sha256_of_json
from pipeline.text.catalogue import LEMMAS, EncoderError, EncoderPlan, Part, vocabulary_rule
from pipeline.text.encoders.bag_of_words import WordCounts, tfidf_policy
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.concatenation import Concatenated
from pipeline.text.encoders.fisher_vector import FisherEncoder
from pipeline.text.encoders.mean import MeanVectors
from pipeline.text.encoders.pca import Projected
from pipeline.text.encoders.token_ids import SEQUENCE_LAYOUTS, WordSequence, longest_caption
from pipeline.text.fisher.codebook import Codebook, Kind, fit_codebook, load_codebook
from pipeline.text.pca.fit import fit_projection, load_projection, require_enough
from pipeline.text.tokenizers.lemmas import Lemmatizer, RuleLemmatizer, load_wordnet
from pipeline.text.tokenizers.tokenizer import TOKENIZERS, Tokenizer
from pipeline.text.vectors import GLOVE_PACKAGE, WordVectors, load_vectors
from pipeline.text.vocabulary import (
    Vocabulary,
    build_vocabulary,
    load_vocabulary,
    save_vocabulary,
)

ENCODER_FILE, PROJECTION_FILE = "encoder.json", "projection.safetensors"
_FORMAT, _VERSION = "pipeline-encoder", 1
_LEMMA_WORDS = 50_000  # of GloVe, by frequency; see `RuleLemmatizer`

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Fitting:
    """What an encoder is fitted to, and where the parts go.

    Attributes
    ----------
    training : the captions of the training split.
    dataset, split : their names, for the record.
    codebooks : a folder of codebooks to take from and to add to; None keeps them to the encoder.
    tell : called with one line before each long step.
    """

    training: Sequence[str]
    dataset: str
    split: str
    codebooks: Path | None
    tell: Tell


def fit_parts(
    plan: EncoderPlan, folder: Path, fitting: Fitting, texts: Sequence[str]
) -> CaptionEncoder:
    """Fit everything but the projection, or take what is there from an earlier call.

    Parameters
    ----------
    plan : of the encoder.
    folder : of the fitted parts; made if it is missing.
    fitting : the captions to fit to.
    texts : captions that will be encoded: word vectors are read for their words.

    Returns
    -------
    CaptionEncoder
        Without the plan's projection: see `fit_components`.

    Raises
    ------
    EncoderError
        The folder holds an encoder of another plan or of other captions.
    VocabularyError, CodebookError, VectorsError, ProjectionError, LemmatizerError
        A part cannot be fitted.
    """
    if plan.pca is not None:
        require_enough(len(fitting.training), plan.pca)
    plan = _Assembly(plan, folder, texts, fitting).plan_with_lengths()
    about: dict[str, Any] = {"plan": plan.to_json()}
    if _is_fitted_to_captions(plan):
        about["captions"] = len(fitting.training)
        about["captions_sha256"] = sha256_of_json(list(fitting.training))
        about |= {"dataset": fitting.dataset, "split": fitting.split}
    _claim(folder, about)
    try:
        return _Assembly(plan, folder, texts, fitting).encoder()
    except BaseException:
        # Nothing was fitted: a mended command may have another plan.
        if [path.name for path in folder.iterdir()] == [ENCODER_FILE]:
            (folder / ENCODER_FILE).unlink()
            folder.rmdir()
        raise


def fit_components(
    plan: EncoderPlan,
    folder: Path,
    encoder: CaptionEncoder,
    training: Sequence[str],
    work: Path,
    device: str,
    progress: Callable[[int, int, int], None],
) -> CaptionEncoder:
    """Add the plan's principal components to an encoder that `fit_parts` gave.

    Parameters
    ----------
    work : folder of the unfinished sums; see `fit_projection`, as for the rest.

    Returns
    -------
    CaptionEncoder
        The encoder itself if the plan has no components.

    Raises
    ------
    ProjectionError, CovarianceError, DeviceError, OutputError, ShardError
        As `fit_projection`, or `load_projection` of components that are there already.
    """
    if plan.pca is None:
        return encoder
    path = folder / PROJECTION_FILE
    if not path.is_file():
        fit_projection(encoder, training, plan.pca, work, device=device, progress=progress).save(
            path
        )
    return Projected(encoder, load_projection(path, encoder))


def load_encoder(folder: Path, texts: Sequence[str]) -> CaptionEncoder:
    """Read a fitted encoder.

    Parameters
    ----------
    folder : what `fit_parts` and `fit_components` left.
    texts : captions that will be encoded: word vectors are read for their words.

    Raises
    ------
    EncoderError
        The folder holds no encoder of this format version.
    VocabularyError, CodebookError, VectorsError, ProjectionError, LemmatizerError
        A part is missing or damaged.
    """
    plan = load_plan(folder)
    encoder = _Assembly(plan, folder, texts, None).encoder()
    if plan.pca is None:
        return encoder
    return Projected(encoder, load_projection(folder / PROJECTION_FILE, encoder))


def load_plan(folder: Path) -> EncoderPlan:
    """Read the plan of a fitted encoder.

    Raises
    ------
    EncoderError
    """
    try:
        return EncoderPlan.from_json(_read(folder)["plan"])
    except (KeyError, TypeError) as error:
        raise EncoderError(
            f"{folder / ENCODER_FILE} has no plan of an encoder ({error!r}); fit it again"
        ) from error


def vocabulary_of(folder: Path, part: Part) -> Vocabulary:
    """Read the vocabulary of one part of a fitted encoder.

    Raises
    ------
    VocabularyError
    """
    return load_vocabulary(folder / f"vocabulary-{part.encoder}.json")


@dataclass(frozen=True, eq=False)
class _Assembly:
    """Puts an encoder together from what is in its folder, and fits what is not."""

    plan: EncoderPlan
    folder: Path
    texts: Sequence[str]
    fitting: Fitting | None

    def encoder(self) -> CaptionEncoder:
        encoders = tuple(self._part(part) for part in self.plan.parts)
        return encoders[0] if len(encoders) == 1 else Concatenated(encoders)

    def plan_with_lengths(self) -> EncoderPlan:
        """Return the plan with every sequence as long as its longest training caption needs."""
        assert self.fitting is not None
        parts = []
        for part in self.plan.parts:
            if part.layout is not None and part.max_length is None:
                layout = SEQUENCE_LAYOUTS[part.layout]
                length = longest_caption(self.fitting.training, self._policy(part), layout)
                part = replace(part, max_length=length)
            parts.append(part)
        return replace(self.plan, parts=tuple(parts))

    def _part(self, part: Part) -> CaptionEncoder:
        policy = self._policy(part)
        if part.kind == "mean":
            return MeanVectors(self._vectors, policy, part.meaning or "known")
        if part.kind == "fisher":
            books = tuple(self._codebook(kind) for kind in part.mixtures)
            return FisherEncoder(books, self._vectors, policy)
        vocabulary = self._vocabulary(part, policy)
        if part.kind == "sequence":
            assert part.layout is not None
            assert part.max_length is not None
            layout = SEQUENCE_LAYOUTS[part.layout]
            return WordSequence(vocabulary, policy, part.max_length, layout)
        return WordCounts(vocabulary, policy, "tfidf" if part.kind == "tfidf" else "counts")

    def _vocabulary(self, part: Part, policy: Tokenizer) -> Vocabulary:
        path = self.folder / f"vocabulary-{part.encoder}.json"
        if self.fitting is not None and not path.exists():
            assert part.vocabulary is not None
            known = None
            if part.takes_vectors:
                known = self._vectors_of(self._tokens(self.fitting.training)).index.keys()
            rule = vocabulary_rule(part.vocabulary)
            built = build_vocabulary(self.fitting.training, policy, rule, known)
            save_vocabulary(built, path)
        return load_vocabulary(path)

    def _codebook(self, kind: Kind) -> Codebook:
        path = self.folder / f"codebook-{kind}.safetensors"
        if self.fitting is not None and not path.exists():
            self._fitted_codebook(kind, self.fitting).save(path)
        return load_codebook(path, self._vectors)

    def _fitted_codebook(self, kind: Kind, fitting: Fitting) -> Codebook:
        """Return a codebook of the shared folder, or fit one and put it there."""
        plan = self.plan.codebooks
        assert plan is not None
        shared = None
        if fitting.codebooks is not None:
            name = f"{kind}-{plan.components}-{self._vectors.name}.safetensors"
            shared = fitting.codebooks / name
        if shared is not None and shared.exists():
            fitting.tell(f"the {kind} codebook is taken from {shared}")
            return load_codebook(shared, self._vectors)
        wanted = self._tokens(fitting.training) if plan.words == "training" else None
        book = fit_codebook(
            self._vectors_of(wanted),
            kind,
            plan.components,
            seed=plan.seed,
            sample=plan.sample,
            progress=fitting.tell,
        )
        if shared is not None:
            shared.parent.mkdir(parents=True, exist_ok=True)
            book.save(shared)
        return book

    def _policy(self, part: Part) -> Tokenizer:
        return tfidf_policy(self._lemmatizer) if part.policy == LEMMAS else TOKENIZERS[part.policy]

    @cached_property
    def _lemmatizer(self) -> Lemmatizer:
        if self.plan.wordnet is not None:
            return load_wordnet(Path(self.plan.wordnet))
        return RuleLemmatizer(GLOVE_PACKAGE, load_vectors(GLOVE_PACKAGE).words[:_LEMMA_WORDS])

    @cached_property
    def _vectors(self) -> WordVectors:
        return self._vectors_of(self._tokens(self.texts))

    def _vectors_of(self, words: set[str] | None) -> WordVectors:
        assert self.plan.vectors is not None
        return load_vectors(self.plan.vectors, words)

    def _tokens(self, texts: Sequence[str]) -> set[str]:
        """Return the words of some captions by the policies of the parts with word vectors."""
        policies = [self._policy(part) for part in self.plan.parts if part.takes_vectors]
        return {word for policy in policies for text in texts for word in policy.tokenize(text)}


def _is_fitted_to_captions(plan: EncoderPlan) -> bool:
    return (
        plan.pca is not None
        or (plan.codebooks is not None and plan.codebooks.words == "training")
        or any(part.vocabulary for part in plan.parts)
    )


def _claim(folder: Path, about: dict[str, Any]) -> None:
    """Write what the folder is for, or check that it is for the same."""
    path = folder / ENCODER_FILE
    about = {"format": _FORMAT, "format_version": _VERSION, **about}
    if not path.exists():
        write_json(path, about)
        return
    found = _read(folder)
    if different := sorted(k for k in {*found, *about} if found.get(k) != about.get(k)):
        inner = _differences(found.get("plan"), about["plan"])
        raise EncoderError(
            f"{folder} holds an encoder that was fitted otherwise: it differs in "
            f"{', '.join(inner if different == ['plan'] else different)}; give another folder for "
            "what is fitted, or remove this one if it is not wanted any more"
        )


def _differences(found: Any, plan: dict[str, Any]) -> list[str]:
    if not isinstance(found, dict):
        return ["plan"]
    return [f"{k} ({found.get(k)!r}, now {v!r})" for k, v in plan.items() if found.get(k) != v]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / ENCODER_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EncoderError(
            f"{path} cannot be read ({error.strerror}): {folder} holds no fitted encoder; make "
            "the caption features first"
        ) from error
    except ValueError as error:
        raise EncoderError(f"{path} is not JSON ({error}); fit the encoder again") from error
    kind = (found.get("format"), found.get("format_version")) if isinstance(found, dict) else found
    if kind != (_FORMAT, _VERSION):
        raise EncoderError(
            f"{path}: its format and version are {kind}, expected {(_FORMAT, _VERSION)}; fit the "
            "encoder again"
        )
    return dict(found)
