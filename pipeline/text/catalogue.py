"""The sentence encoders by name, and the plan that a name with its options becomes."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pipeline.errors import PipelineError
from pipeline.text.encoders.mean import MEANINGS
from pipeline.text.encoders.token_ids import SEQUENCE_LAYOUTS
from pipeline.text.fisher.codebook import Kind as Mixture
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors import GLOVE_PACKAGE, STORED_SUFFIX
from pipeline.text.vocabulary import VOCABULARY_RULES, VocabularyRule

LEMMAS = "lemmas"
"""The policy of tf-idf: Treebank words without stop words, as lemmas (`counts.tfidf_policy`)."""

_NUMBERED_RULE = re.compile(r"(min|top)-([1-9][0-9]*)")


class EncoderError(PipelineError):
    """No encoder has this name or takes these options, or a fitted one is not what it should be."""


@dataclass(frozen=True)
class Part:
    """One encoder of a concatenation, or the only one.

    Attributes
    ----------
    encoder : its name in `ENCODERS`.
    kind : which family encodes.
    policy : a name in `TOKENIZERS`, or `LEMMAS`.
    vocabulary : name of the rule that takes words of the training captions; None for encoders
        that know the words that have a vector.
    meaning : of "mean", a name in `MEANINGS`. mixtures : of the codebooks of a Fisher vector.
    layout : of a sequence, a name in `SEQUENCE_LAYOUTS`.
    max_length : of a sequence, marks included; None takes that of the longest training caption.
    """

    encoder: str
    kind: Literal["mean", "bow", "tfidf", "fisher", "sequence"]
    policy: str = "treebank"
    vocabulary: str | None = None
    meaning: str | None = None
    mixtures: tuple[Mixture, ...] = ()
    layout: str | None = None
    max_length: int | None = None

    @property
    def takes_vectors(self) -> bool:
        """Whether it is made from word vectors, or knows the words that have one."""
        drops = self.layout is not None and SEQUENCE_LAYOUTS[self.layout].unknown == "dropped"
        return self.kind in ("mean", "fisher") or drops


ENCODERS: dict[str, Part] = {
    part.encoder: part
    for part in (
        Part("mean", "mean", meaning="known"),
        Part("mean-all", "mean", meaning="all"),
        Part("mean-unit", "mean", meaning="unit"),
        Part("mean-w2vv", "mean", "w2vv-filterstop", meaning="known"),
        Part("bow", "bow", "w2vv-filterstop", "w2vv"),
        Part("tfidf", "tfidf", LEMMAS, "wang-flickr30k"),
        Part("tfidf-coco", "tfidf", LEMMAS, "wang-coco"),
        Part("fv-gmm", "fisher", mixtures=("gmm",)),
        Part("fv-lmm", "fisher", mixtures=("lmm",)),
        Part("fv-hglmm", "fisher", mixtures=("hglmm",)),
        Part("fv-gmm-hglmm", "fisher", mixtures=("gmm", "hglmm")),
        Part("sequence", "sequence", "vsepp", "vsepp", layout="vsepp"),
        Part("sequence-kiros", "sequence", "kiros", "all", layout="kiros"),
        Part("sequence-w2vv", "sequence", "w2vv", "w2vv", layout="w2vv", max_length=32),
        Part("sequence-yan", "sequence", "treebank", "all", layout="yan", max_length=48),
    )
}
"""Every encoder by name.

mean, mean-all, mean-unit, mean-w2vv
    The mean of the word vectors; `MEANINGS` says which. `mean-w2vv` is Word2VisualVec's, without
    stop words (Dong et al. 2018).
bow
    Word2VisualVec's counts: words seen 5 times or more, without stop words.
tfidf, tfidf-coco
    Wang et al. 2016: the 3,000 and the 5,600 most frequent lemmas.
fv-gmm, fv-lmm, fv-hglmm, fv-gmm-hglmm
    Fisher vectors of Klein et al. 2015, which Wang et al. 2016 takes too. The policy `klein` is
    for cased word vectors; `treebank`, in lower case, fits GloVe 6B.
sequence, sequence-kiros, sequence-w2vv, sequence-yan
    Word numbers as VSE++, Kiros et al. 2014, Word2VisualVec and Yan 2019 have them.
"""


@dataclass(frozen=True)
class CodebookPlan:
    """How codebooks are fitted; see `fit_codebook`.

    Attributes
    ----------
    components, sample, seed : of each mixture.
    words : whether it is fitted to all words of the "source" or to those of the "training"
        captions.
    """

    components: int = 30
    sample: int = 300_000
    seed: int = 0
    words: Literal["source", "training"] = "source"


@dataclass(frozen=True)
class EncoderPlan:
    """All that decides what an encoder is, beside the captions that it is fitted to.

    Attributes
    ----------
    parts : one, or several side by side.
    vectors : source of the word vectors; None where no part takes them.
    wordnet : folder of a WordNet for `LEMMAS`; None takes the rules.
    codebooks : how they are fitted; None where no part has any.
    pca : how many principal components to keep; None keeps the rows as they are.
    """

    parts: tuple[Part, ...]
    vectors: str | None = None
    wordnet: str | None = None
    codebooks: CodebookPlan | None = None
    pca: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        parts = [{**asdict(part), "mixtures": list(part.mixtures)} for part in self.parts]
        return {**asdict(self), "parts": parts}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "EncoderPlan":
        """Take back what `to_json` gave; TypeError and KeyError tell that it is something else."""
        parts = tuple(Part(**{**p, "mixtures": tuple(p["mixtures"])}) for p in value["parts"])
        books = value["codebooks"] and CodebookPlan(**value["codebooks"])
        return cls(**{**value, "parts": parts, "codebooks": books})


_OF_PARTS = ("policy", "vocabulary", "layout", "max_length")
_OF_CODEBOOKS = ("components", "sample", "seed", "codebook_words")


def plan_encoder(name: str, **options: Any) -> EncoderPlan:
    """Return the plan of an encoder.

    Parameters
    ----------
    name : names of `ENCODERS`, joined by "+" for a concatenation.
    options : `policy`, `vocabulary`, `layout` and `max_length` of every part that has them;
        `vectors`, `wordnet`, `pca`; `components`, `sample`, `seed` and `codebook_words` of
        codebooks. None leaves the default. That is the packaged GloVe for `vectors`, and "source"
        for `codebook_words`
        but with stored vectors, whose words are those of all splits: there it is "training".

    Raises
    ------
    EncoderError
        An unknown name (the nearest are listed) or value, or an option that nothing takes.
    """
    given = {option: value for option, value in options.items() if value is not None}
    parts = []
    taken = {"pca"}
    for one in name.split("+"):
        if one not in ENCODERS:
            near = difflib.get_close_matches(one, ENCODERS, n=3, cutoff=0.5) or list(ENCODERS)
            raise EncoderError(f"no encoder is called {one!r}; did you mean {' or '.join(near)}?")
        has = [option for option in _OF_PARTS if _has(ENCODERS[one], option)]
        parts.append(replace(ENCODERS[one], **{o: given[o] for o in has if o in given}))
        taken.update(has)
    vectors = books = None
    if any(part.takes_vectors for part in parts):
        taken.add("vectors")
        vectors = given.get("vectors", GLOVE_PACKAGE)
    if any(part.mixtures for part in parts):
        taken.update(_OF_CODEBOOKS)
        words = "training" if str(vectors).endswith(STORED_SUFFIX) else "source"
        own = {option: given[option] for option in _OF_CODEBOOKS[:3] if option in given}
        books = CodebookPlan(**own, words=given.get("codebook_words", words))
    if any(part.policy == LEMMAS for part in parts):
        taken.add("wordnet")
    if useless := sorted(given.keys() - taken):
        raise EncoderError(
            f"the encoder {name!r} takes no {' and no '.join(u.replace('_', ' ') for u in useless)}"
            "; leave it out, or name an encoder that does"
        )
    plan = EncoderPlan(tuple(parts), vectors, given.get("wordnet"), books, given.get("pca"))
    for part in plan.parts:
        _check(part)
    if plan.pca is not None and any(part.kind == "sequence" for part in plan.parts):
        raise EncoderError(
            f"{name!r} has word numbers, which have no principal components; leave the sequence "
            "or the components out"
        )
    return plan


def vocabulary_rule(name: str) -> VocabularyRule:
    """Return a rule of `VOCABULARY_RULES`, or "min-N" (seen N times or more), or "top-N".

    Raises
    ------
    EncoderError
    """
    if name in VOCABULARY_RULES:
        return VOCABULARY_RULES[name]
    if (numbered := _NUMBERED_RULE.fullmatch(name)) is None:
        raise EncoderError(
            f"no vocabulary rule is known as {name!r}; there are {', '.join(VOCABULARY_RULES)}, "
            "min-N (words seen N times or more) and top-N (the N most frequent)"
        )
    number = int(numbered[2])
    if numbered[1] == "min":
        return VocabularyRule(name, minimum_count=number)
    return VocabularyRule(name, most_frequent=number)


def _has(part: Part, option: str) -> bool:
    if option == "policy":
        return True
    if option == "max_length":
        return part.kind == "sequence"
    return getattr(part, option) is not None


def _check(part: Part) -> None:
    known = {
        "policy": [*TOKENIZERS, LEMMAS],
        "layout": SEQUENCE_LAYOUTS,
        "meaning": MEANINGS,
    }
    for option, values in known.items():
        value = getattr(part, option)
        if value is not None and value not in values:
            raise EncoderError(f"no {option} is known as {value!r}; there are {', '.join(values)}")
    if part.vocabulary is not None:
        vocabulary_rule(part.vocabulary)
