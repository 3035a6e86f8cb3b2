"""Encoders by name, and the options of an encoder from those of a call.

A new encoder is one module and one line of `_BUILTIN`; packages add others by entry points of the
group `caption_feature_pipeline.encoders`. Commands list the names, so the modules import heavy
libraries in functions only.
"""

from dataclasses import Field, fields
from typing import Any, NamedTuple

from pipeline.store.errors import UnknownName
from pipeline.store.registry import Registry
from pipeline.store.wording import did_you_mean
from pipeline.text import EncoderError
from pipeline.text.encoders.base import Encoder
from pipeline.text.encoders.options import EncoderOptions


class Kind(NamedTuple):
    """A kind of encoder of this package."""

    path: str  # module in this package, and class
    about: str  # what the rows are, for lists of names


_BUILTIN: dict[str, Kind] = {
    "mean": Kind("mean:Mean", "mean of the word vectors"),
    "bow": Kind("bag_of_words:BagOfWords", "word counts"),
    "tfidf": Kind("bag_of_words:BagOfWords", "tf-idf of lemmas"),
    "fisher": Kind("fisher_vector:FisherVector", "Fisher vector of the word vectors"),
    "token-ids": Kind("token_ids:TokenIds", "ids of the words in order"),
    "tags": Kind("tags:TagIds", "ids of the words' part-of-speech tags"),
    "open-clip": Kind("open_clip:OpenClipText", "text tower of an open_clip model"),
    "transformers": Kind(
        "transformers_text:TransformersTextTower", "text tower of a dual encoder of transformers"
    ),
    "sentence-transformer": Kind(
        "sentence_transformer:SentenceTransformer", "a sentence transformer: folder, package or hub"
    ),
    "concatenation": Kind("concatenation:Concatenation", "rows of several encoders"),
    "pca": Kind("pca:Pca", "principal components of rows"),
}
"""Every kind of encoder of this package.

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


def _is_encoder(thing: Any) -> bool:
    """Return whether the names of a guest's presets cannot be mistaken for others."""
    if not (isinstance(thing, type) and issubclass(thing, Encoder) and hasattr(thing, "Options")):
        return False
    names = {(preset.name, preset.kind) for preset in thing.presets}
    return all(f"{name}-".startswith(f"{kind}-") and not {*name} & {*":+"} for name, kind in names)


KINDS: Registry[type[Encoder]] = Registry(
    "encoders",
    "pipeline.text.encoders.registry:KINDS",
    {kind: f"pipeline.text.encoders.{known.path}" for kind, known in _BUILTIN.items()},
    "a subclass of pipeline.text.encoders.base.Encoder with Options and with presets that are "
    "called KIND or KIND-...",
    _is_encoder,
)
"""Classes of encoders by kind, and guests."""


def about(kind: str) -> str:
    """Return what the rows of a kind of encoder are, and the package of a guest."""
    if kind in _BUILTIN:
        return _BUILTIN[kind].about
    text = (KINDS.get(kind).__doc__ or "").strip().partition("\n")[0].rstrip(".")
    return f"{text} ({KINDS.plugin(kind)})"


def class_of(options: EncoderOptions) -> type[Encoder]:
    """Return the class of the encoder with some options."""
    return encoder_class(options.kind)


def encoder_class(kind: str) -> type[Encoder]:
    """Return the class of a kind of encoder, which knows the package of a guest."""
    found = KINDS.get(kind)
    if plugin := KINDS.plugin(kind):
        found.plugin = plugin
    return found


def encoders() -> dict[str, EncoderOptions]:
    """Return the options of every encoder with a name of its own; built-in names come first."""
    presets: dict[str, EncoderOptions] = {}
    for kind, encoder in KINDS.usable().items():
        for preset in encoder.presets:
            if preset.kind == kind:
                presets.setdefault(preset.name, preset)
    return presets


def find_encoder(name: str) -> EncoderOptions:
    """Return the default options of an encoder; models of libraries are not checked here."""
    kind, _, model = name.partition(":")
    of_models = [kind for kind, encoder in KINDS.usable().items() if encoder.named_by_model]
    if kind in of_models and model:
        return encoder_class(kind).Options(name, kind)
    if name not in encoders():
        for guest in KINDS:
            if KINDS.plugin(guest) and f"{kind}-".startswith(f"{guest}-"):
                KINDS.get(guest)  # which states why a broken guest has no names
        names = [*encoders(), *(f"{kind}:{model or '<model>'}" for kind in of_models)]
        hint = did_you_mean(name, names, "pipeline list encoders")
        raise UnknownName(f"no encoder is called {name!r}; {hint}")
    return encoders()[name]


def settable_fields() -> "dict[str, Field[Any]]":
    """Return the fields that `encoder_options` sets, of all encoders, by name."""
    options = [encoder.Options for encoder in KINDS.usable().values()]
    return {f.name: f for kind in options for f in fields(kind) if f.metadata.get("help")}


def encoder_options(name: str, **given: Any) -> EncoderOptions:
    """Return the options of encoders joined by "+", with those of `pipeline.encode`."""
    given = {option: value for option, value in given.items() if value is not None}
    pca = given.pop("pca", None)
    parts, unused = [], {*given}
    for member in name.split("+"):
        preset = find_encoder(member)
        values = {each.name: getattr(preset, each.name) for each in fields(preset)}
        settable = [each.name for each in fields(preset) if each.metadata.get("help")]
        values |= {option: given[option] for option in settable if option in given}
        part = type(preset)(**values).settled()
        parts.append(part)
        unused -= {option for option in settable if getattr(part, option) == given.get(option)}
    if unused:
        raise EncoderError(
            f"encoder {name!r} has no option "
            f"{' or '.join(option.replace('_', ' ') for option in sorted(unused))}; omit it, or "
            "choose an encoder that has it"
        )
    return combined(tuple(parts), pca)


def combined(parts: tuple[EncoderOptions, ...], pca: int | None) -> EncoderOptions:
    """Return the options of several encoders' concatenation, or of one, projected if `pca`."""
    name, options = "+".join(part.name for part in parts), parts[0]
    if len(parts) > 1:
        options = encoder_class("concatenation").Options(name, "concatenation", parts)
    if pca is None:
        return options
    if options.rows_are_ids:
        raise EncoderError(
            f"{name!r} has ids of words or tags, for which principal components are meaningless; "
            "omit these encoders or `pca=...`"
        )
    return encoder_class("pca").Options(name, "pca", (options,), pca)
