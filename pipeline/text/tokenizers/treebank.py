"""Penn Treebank words by nltk's `NLTKWordTokenizer`, without the rest of nltk."""

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

# nltk sets a full stop apart only at the very end of its text and leaves the rest to a sentence
# splitter that needs a download. Without this rule, the "dog." of "A dog. A cat." is no known
# word. Two characters before the stop, so that "u.s. army" keeps its abbreviation.
_INNER_STOP = re.compile(r"(?<=\w\w)\.(?=\s)")
_LAST_STOP = re.compile(r"(?<=[A-Za-z0-9])\.\s*\Z")
_CONTRACTION = r"(?!.*\b(?:cannot|gimme|gonna|gotta|lemme|wanna)\b)"  # nltk splits these
_PLAIN_WORD = re.compile(_CONTRACTION + r"[a-z0-9]+(?:-[a-z0-9]+)*|[.,]", re.ASCII | re.IGNORECASE)


def treebank_words(text: str) -> list[str]:
    """Split a caption; a full stop between two of its sentences is a word too.

    "A dog's ball. It isn't red" gives "A", "dog", "'s", "ball", ".", "It", "is", "n't", "red".
    """
    text = _INNER_STOP.sub(" .", text)
    # Most captions have nothing for nltk to do, and its rules take many times as long.
    words = _LAST_STOP.sub(" .", text.replace(", ", " , ")).split()
    return words if all(map(_PLAIN_WORD.fullmatch, words)) else nltk_words(text)


def nltk_words(text: str) -> list[str]:
    """Split one sentence as `nltk.tokenize.NLTKWordTokenizer().tokenize(text)` does."""
    return _tokenize()(text)


@cache
def _tokenize() -> Callable[[str], list[str]]:
    """Return the method of nltk's tokenizer, imported without the packages that it lies in.

    `import nltk` runs all of nltk, and by way of it scipy.stats. So empty modules with the paths
    of both packages stand in their places while the tokenizer's module is imported; afterwards
    everything is taken out again, and a later `import nltk` is what it always was.
    """
    if "nltk" in sys.modules:
        return _method(import_module("nltk.tokenize.destructive"))
    found = find_spec("nltk")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("Treebank words need the package nltk: pip install nltk")
    root = found.submodule_search_locations[0]
    try:
        for name, folder in (("nltk", root), ("nltk.tokenize", f"{root}/tokenize")):
            shell = ModuleType(name)
            shell.__path__ = [folder]
            sys.modules[name] = shell
        return _method(import_module("nltk.tokenize.destructive"))
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "nltk"]:
            del sys.modules[name]


def _method(module: ModuleType) -> Callable[[str], list[str]]:
    tokenize: Callable[[str], list[str]] = module.NLTKWordTokenizer().tokenize
    return tokenize
