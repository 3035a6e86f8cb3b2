"""Sentence encoders by name, and the plan of an encoder with its options.

This module reads no files and imports only numpy, so that commands can list the names.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import Any, Literal

from pipeline.store.errors import UnknownName
from pipeline.store.schema import convert, convert_fields
from pipeline.store.wording import did_you_mean
from pipeline.text import EncoderError
from pipeline.text.encoders.mean import AVERAGINGS
from pipeline.text.encoders.token_ids import TOKEN_LAYOUTS
from pipeline.text.fisher.mixture import MixtureKind
from pipeline.text.taggers import DEFAULT_TAGGER, SPACY_TAGGER, TAG_SETS
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors import GLOVE_PACKAGE, lists_general_words
from pipeline.text.vocabulary import VOCABULARY_RULES, VocabularyRule

LEMMAS = "lemmas"
"""The tokenizer of tf-idf: lemmas of Treebank words without stop words.

Not in `TOKENIZERS`, since it needs a lemmatizer: see `bag_of_words.tfidf_tokenizer`.
"""

_NUMBERED_RULE = re.compile(r"(min|top)-([1-9][0-9]*)")

# Modules with another name than their kind, and kinds that compute with word vectors.
_MODULES = {
    "bow": "bag_of_words",
    "tfidf": "bag_of_words",
    "fisher": "fisher_vector",
    "open-clip": "open_clip_text",
}
_OF_VECTORS = ("mean", "fisher")

# Kinds of library models, named "<kind>:<model>", with the default of their option `weights`;
# None for kinds without it.
_OF_LIBRARIES: dict[str, str | None] = {"open-clip": "pretrained", "sentence-transformer": None}

# Keys of these fields in fitted encoders since the first version.
_JSON_KEYS = {"name": "encoder", "tokenizer": "policy", "averaging": "meaning"}
_FIELDS = {key: field for field, key in _JSON_KEYS.items()}


@dataclass(frozen=True)
class EncoderSpec:
    """One encoder, alone or as part of a concatenation."""

    name: str  # in `ENCODERS`, or "<kind>:<model>" of a library's model
    kind: str  # family, which determines the module
    tokenizer: str | None = "treebank"  # in `TOKENIZERS`, or `LEMMAS`; None: the library's own
    vocabulary: str | None = None  # name of a rule; None: the words with a vector
    averaging: str | None = None  # in `AVERAGINGS`, for "mean"
    mixtures: tuple[MixtureKind, ...] = ()  # codebooks of a Fisher vector
    layout: str | None = None  # in `TOKEN_LAYOUTS`, for token ids and tags
    max_length: int | None = None  # row length with marks; None: of the longest training caption
    weights: str | None = None  # of a library's model: "pretrained", "random:SEED", or a file
    tagger: str | None = None  # name for `tagger_called`, for tags
    tag_set: str | None = None  # in `TAG_SETS`, for tags

    @property
    def module(self) -> str:
        """Name of the module whose `assemble` builds it."""
        name = _MODULES.get(self.kind, self.kind.replace("-", "_"))
        return f"pipeline.text.encoders.{name}"

    @property
    def model(self) -> str:
        """Model name of a library's model, after the kind; "" for other encoders."""
        return self.name.partition(":")[2]

    @property
    def computes_with_vectors(self) -> bool:
        """Whether its rows are computed from word vectors."""
        return self.kind in _OF_VECTORS

    @property
    def takes_vectors(self) -> bool:
        """Whether it needs word vectors, for its rows or for its vocabulary."""
        drops = self.layout is not None and TOKEN_LAYOUTS[self.layout].unknown == "dropped"
        return self.computes_with_vectors or drops

    @property
    def recorded_name(self) -> str:
        """Name in files, where "token-ids" is "sequence"."""
        return _recorded(self.name)

    def takes(self, option: str) -> bool:
        """Return whether it has an option of `plan_encoder`."""
        if option == "max_length":
            return self.layout is not None
        return getattr(self, option) is not None

    def check(self) -> None:
        """Check the names of tokenizer, layout, averaging, tags and vocabulary rule."""
        names = {
            "tokenizer": [*TOKENIZERS, LEMMAS],
            "layout": TOKEN_LAYOUTS,
            "averaging": AVERAGINGS,
            "tag_set": TAG_SETS,
        }
        for field, values in names.items():
            value = getattr(self, field)
            if value is not None and value not in values:
                raise UnknownName(
                    f"the {field} {value!r} is unknown; expected one of {', '.join(values)}"
                )
        if self.vocabulary is not None:
            vocabulary_rule(self.vocabulary)
        if self.max_length is not None and self.max_length < 1:
            raise EncoderError(f"the length of a row is {self.max_length}, expected 1 or more")

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, under the keys of fitted encoders."""
        value = {_JSON_KEYS.get(field, field): value for field, value in asdict(self).items()}
        for later in ("weights", "tagger", "tag_set"):
            if value[later] is None:
                del value[later]
        names = {"encoder": self.recorded_name, "kind": _recorded(self.kind)}
        return {**value, **names, "mixtures": list(self.mixtures)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "EncoderSpec":
        """Return the encoder from its `to_json`, if it is consistent with its kind."""
        spec = convert({_FIELDS.get(key, key): item for key, item in value.items()}, cls)
        spec = replace(spec, name=_current(spec.name), kind=_current(spec.kind))
        spec.check()
        standard = find_encoder(spec.name)
        differing = [
            field.name
            for field in dataclass_fields(cls)
            if (getattr(spec, field.name) is None) != (getattr(standard, field.name) is None)
        ]
        if spec.kind != standard.kind or bool(spec.mixtures) != bool(standard.mixtures):
            differing.append("kind")
        if differing := [name for name in differing if name != "max_length"]:
            raise EncoderError(f"the encoder {spec.name!r} has another {differing[0]}")
        return spec


def _recorded(name: str) -> str:
    return name.replace("token-ids", "sequence")


def _current(name: str) -> str:
    return name.replace("sequence", "token-ids")


ENCODERS: dict[str, EncoderSpec] = {
    spec.name: spec
    for spec in (
        EncoderSpec("mean", "mean", averaging="known"),
        EncoderSpec("mean-all", "mean", averaging="all"),
        EncoderSpec("mean-unit", "mean", averaging="unit"),
        EncoderSpec("mean-w2vv", "mean", "w2vv-filterstop", averaging="known"),
        EncoderSpec("bow", "bow", "w2vv-filterstop", "w2vv"),
        EncoderSpec("tfidf", "tfidf", LEMMAS, "wang-flickr30k"),
        EncoderSpec("tfidf-coco", "tfidf", LEMMAS, "wang-coco"),
        EncoderSpec("fv-gmm", "fisher", mixtures=("gmm",)),
        EncoderSpec("fv-lmm", "fisher", mixtures=("lmm",)),
        EncoderSpec("fv-hglmm", "fisher", mixtures=("hglmm",)),
        EncoderSpec("fv-gmm-hglmm", "fisher", mixtures=("gmm", "hglmm")),
        EncoderSpec("token-ids", "token-ids", "vsepp", "vsepp", layout="vsepp"),
        EncoderSpec("token-ids-kiros", "token-ids", "kiros", "all", layout="kiros"),
        EncoderSpec("token-ids-qian", "token-ids", vocabulary="all", layout="kiros"),
        EncoderSpec("token-ids-words", "token-ids", "vsepp", "all", layout="words"),
        EncoderSpec("token-ids-w2vv", "token-ids", "w2vv", "w2vv", layout="w2vv", max_length=32),
        EncoderSpec("token-ids-yan", "token-ids", vocabulary="all", layout="yan", max_length=48),
        *(
            EncoderSpec(name, "tags", "vsepp", layout="kiros", tagger=tagger, tag_set=tag_set)
            for name, tagger, tag_set in (
                ("tags", DEFAULT_TAGGER, "penn"),
                ("tags-spacy", SPACY_TAGGER, "penn"),
                ("tags-universal", DEFAULT_TAGGER, "universal"),
            )
        ),
    )
}
"""Every encoder by name.

mean, mean-all, mean-unit, mean-w2vv
    The mean of the word vectors, see `AVERAGINGS`. `mean-w2vv` is Word2VisualVec's, without stop
    words (Dong et al. 2018).
bow
    Word2VisualVec's counts: words with 5 occurrences or more, without stop words.
tfidf, tfidf-coco
    Wang et al. 2016: the 3,000 and the 5,600 most frequent lemmas.
fv-gmm, fv-lmm, fv-hglmm, fv-gmm-hglmm
    Fisher vectors of Klein et al. 2015, also used by Wang et al. 2016. The tokenizer `klein` is for
    cased word vectors; `treebank`, in lower case, fits GloVe 6B.
token-ids, token-ids-kiros, token-ids-qian, token-ids-w2vv, token-ids-yan
    Token ids as in VSE++, Kiros et al. 2014 and order-embeddings, Qian & Lamberti 2018,
    Word2VisualVec, and Yan 2019.
token-ids-words
    Token ids of only the words with a vector, for sums of word vectors (Kiros et al. 2014).
tags, tags-spacy, tags-universal
    The part of speech of each word of `token-ids`, from 45 or 12 tags, for language models
    (Kiros et al. 2014); `tags-spacy` by spaCy's tagger, the others by TextBlob's.
"""


def find_encoder(name: str) -> EncoderSpec:
    """Return an encoder with its defaults, by name; models of libraries are not checked here."""
    kind, colon, model = name.partition(":")
    if kind in _OF_LIBRARIES and colon and model:
        return EncoderSpec(name, kind, tokenizer=None, weights=_OF_LIBRARIES[kind])
    if name not in ENCODERS:
        names = [*ENCODERS, *(f"{kind}:{model or '<model>'}" for kind in _OF_LIBRARIES)]
        hint = did_you_mean(name, names, "pipeline list encoders")
        raise UnknownName(f"no encoder is called {name!r}; {hint}")
    return ENCODERS[name]


@dataclass(frozen=True)
class CodebookPlan:
    """Options of `fit_codebook`."""

    components: int = 30
    sample: int = 300_000  # words
    seed: int = 0
    words: Literal["source", "training"] = "source"  # all words, or those of the training captions


@dataclass(frozen=True)
class EncoderPlan:
    """Everything that determines an encoder except the captions it is fitted on."""

    specs: tuple[EncoderSpec, ...]  # one encoder, or the parts of a concatenation
    vectors: str | None = None  # source of the word vectors; None if no encoder needs them
    wordnet: str | None = None  # folder of a WordNet for `LEMMAS`; None: rules
    codebooks: CodebookPlan | None = None  # None if no encoder has any
    pca: int | None = None  # number of principal components; None: no projection

    def to_json(self) -> dict[str, Any]:
        others = {name: value for name, value in asdict(self).items() if name != "specs"}
        return {"parts": [spec.to_json() for spec in self.specs], **others}

    @classmethod
    def from_json(cls, value: Any) -> "EncoderPlan":
        """Return the plan from its `to_json`, if its encoders have their vectors and codebooks."""
        values = convert_fields(value, cls, ("specs",), parts=list[dict[str, Any]])
        plan = cls(tuple(map(EncoderSpec.from_json, values.pop("parts"))), **values)
        for spec in plan.specs:
            if spec.takes_vectors and plan.vectors is None:
                raise EncoderError(f"the encoder {spec.name!r} needs `vectors`, which are null")
            if spec.mixtures and plan.codebooks is None:
                raise EncoderError(f"the encoder {spec.name!r} needs `codebooks`, which are null")
        return plan


_SPEC_OPTIONS = ("tokenizer", "vocabulary", "layout", "max_length", "weights", "tagger")
_CODEBOOK_OPTIONS = ("components", "sample", "seed", "codebook_words")


def plan_encoder(name: str, **options: Any) -> EncoderPlan:
    """Return the plan of encoders joined by "+", with the options of `pipeline.encode`."""
    given = {option: value for option, value in options.items() if value is not None}
    specs = []
    used = {"pca"}
    for member in name.split("+"):
        spec = find_encoder(member)
        applicable = [option for option in _SPEC_OPTIONS if spec.takes(option)]
        spec = replace(spec, **{option: given[option] for option in applicable if option in given})
        spec.check()
        specs.append(spec)
        used.update(applicable)
    vectors = codebooks = None
    if any(spec.takes_vectors for spec in specs):
        used.add("vectors")
        vectors = given.get("vectors", GLOVE_PACKAGE)
    if any(spec.mixtures for spec in specs):
        used.update(_CODEBOOK_OPTIONS)
        words = "source" if lists_general_words(str(vectors)) else "training"
        sizes = {option: given[option] for option in _CODEBOOK_OPTIONS[:3] if option in given}
        codebooks = CodebookPlan(**sizes, words=given.get("codebook_words", words))
    if any(spec.tokenizer == LEMMAS for spec in specs):
        used.add("wordnet")
    if useless := sorted(given.keys() - used):
        raise EncoderError(
            f"encoder {name!r} has no option {' or '.join(u.replace('_', ' ') for u in useless)}"
            "; leave it out, or name an encoder that has it"
        )
    plan = EncoderPlan(tuple(specs), vectors, given.get("wordnet"), codebooks, given.get("pca"))
    if plan.pca is not None and any(spec.layout for spec in specs):
        raise EncoderError(
            f"{name!r} has ids of words or tags, for which principal components are meaningless; "
            "leave out the ids or `pca`"
        )
    return plan


def vocabulary_rule(name: str) -> VocabularyRule:
    """Return a rule of `VOCABULARY_RULES`, or "min-N" (N occurrences or more), or "top-N"."""
    if name in VOCABULARY_RULES:
        return VOCABULARY_RULES[name]
    if (numbered := _NUMBERED_RULE.fullmatch(name)) is None:
        raise UnknownName(
            f"the vocabulary rule {name!r} is unknown; expected {', '.join(VOCABULARY_RULES)}, "
            "min-N (words with N occurrences or more) or top-N (the N most frequent)"
        )
    number = int(numbered[2])
    if numbered[1] == "min":
        return VocabularyRule(name, minimum_count=number)
    return VocabularyRule(name, most_frequent=number)
