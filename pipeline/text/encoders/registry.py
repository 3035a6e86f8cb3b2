"""Encoders by name, and the options of an encoder from those of a call.

A new encoder is one module and one line of `KINDS`. Commands list the names, so the modules import
heavy libraries in functions only.
"""

from dataclasses import Field, fields
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from pipeline.store.errors import UnknownName
from pipeline.store.wording import did_you_mean
from pipeline.text import EncoderError
from pipeline.text.encoders.base import Encoder
from pipeline.text.encoders.options import EncoderOptions


class Kind(NamedTuple):
    """An entry of `KINDS`."""

    path: str  # module in this package, and class
    about: str  # what the rows are, for lists of names


KINDS: dict[str, Kind] = {
    "mean": Kind("mean:Mean", "mean of the word vectors"),
    "bow": Kind("bag_of_words:BagOfWords", "word counts"),
    "tfidf": Kind("bag_of_words:BagOfWords", "tf-idf of lemmas"),
    "fisher": Kind("fisher_vector:FisherVector", "Fisher vector of the word vectors"),
    "token-ids": Kind("token_ids:TokenIds", "ids of the words in order"),
    "tags": Kind("tags:TagIds", "ids of the words' part-of-speech tags"),
    "open-clip": Kind("open_clip:OpenClipText", "text tower of an open_clip model"),
    "sentence-transformer": Kind(
        "sentence_transformer:SentenceTransformer", "a sentence transformer: folder or package"
    ),
    "concatenation": Kind("concatenation:Concatenation", "rows of several encoders"),
    "pca": Kind("pca:Pca", "principal components of rows"),
}
"""Every kind of encoder.

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


def class_of(options: EncoderOptions) -> type[Encoder]:
    """Return the class of the encoder with some options."""
    return encoder_class(options.kind)


@cache
def encoder_class(kind: str) -> type[Encoder]:
    """Return the class of a kind of encoder."""
    module, _, name = KINDS[kind].path.partition(":")
    found: type[Encoder] = getattr(import_module(f"pipeline.text.encoders.{module}"), name)
    return found


@cache
def encoders() -> dict[str, EncoderOptions]:
    """Return the options of every encoder with a name of its own."""
    presets = [preset for kind in KINDS for preset in encoder_class(kind).presets]
    return {preset.name: preset for preset in presets}


def find_encoder(name: str) -> EncoderOptions:
    """Return the default options of an encoder; models of libraries are not checked here."""
    kind, _, model = name.partition(":")
    of_models = [kind for kind in KINDS if encoder_class(kind).named_by_model]
    if kind in of_models and model:
        return encoder_class(kind).Options(name, kind)
    if name not in encoders():
        names = [*encoders(), *(f"{kind}:{model or '<model>'}" for kind in of_models)]
        hint = did_you_mean(name, names, "pipeline list encoders")
        raise UnknownName(f"no encoder is called {name!r}; {hint}")
    return encoders()[name]


def settable_fields() -> "dict[str, Field[Any]]":
    """Return the fields that `encoder_options` sets, of all encoders, by name."""
    options = [encoder_class(kind).Options for kind in KINDS]
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
            f"{' or '.join(option.replace('_', ' ') for option in sorted(unused))}; leave it out, "
            "or name an encoder that has it"
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
            "leave out the ids or `pca`"
        )
    return encoder_class("pca").Options(name, "pca", (options,), pca)
