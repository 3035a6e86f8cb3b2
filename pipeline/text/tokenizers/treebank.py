"""Penn Treebank words from nltk's `NLTKWordTokenizer`, without the rest of nltk."""

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

# nltk separates a full stop only at the very end of its text, and relies on a sentence splitter
# that needs a download. Without this rule, the "dog." of "A dog. A cat." would be out of
# vocabulary. Two characters before the stop, so that "u.s. army" keeps its abbreviation.
_INNER_STOP = re.compile(r"(?<=\w\w)\.(?=\s)")
_LAST_STOP = re.compile(r"(?<=[A-Za-z0-9])\.\s*\Z")
_CONTRACTION = r"(?!.*\b(?:cannot|gimme|gonna|gotta|lemme|wanna)\b)"  # nltk splits these
_PLAIN_WORD = re.compile(_CONTRACTION + r"[a-z0-9]+(?:-[a-z0-9]+)*|[.,]", re.ASCII | re.IGNORECASE)


def treebank_words(text: str) -> list[str]:
    """Split a caption into Treebank words; a full stop between two sentences is a word too."""
    text = _INNER_STOP.sub(" .", text)
    # Fast path: most captions need none of nltk's rules, which are many times slower.
    words = _LAST_STOP.sub(" .", text.replace(", ", " , ")).split()
    return words if all(map(_PLAIN_WORD.fullmatch, words)) else nltk_words(text)


def nltk_words(text: str) -> list[str]:
    """Split one sentence like `nltk.tokenize.NLTKWordTokenizer().tokenize(text)`."""
    return _tokenize()(text)


@cache
def _tokenize() -> Callable[[str], list[str]]:
    """Return the method of nltk's tokenizer."""
    # `import nltk` imports all of nltk, and scipy.stats.
    module = import_alone("nltk.tokenize.destructive")
    tokenize: Callable[[str], list[str]] = module.NLTKWordTokenizer().tokenize
    return tokenize


def import_alone(name: str) -> ModuleType:
    """Import a module without running the `__init__` of its packages, which may import all of them.

    If the package is already imported, the module is imported as usual.
    """
    package, *inner = name.split(".")
    if package in sys.modules:
        return import_module(name)
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    folder, path = spec.submodule_search_locations[0], package
    try:
        # Empty modules with the packages' paths replace them during the import. They are removed
        # afterwards, so that a later import of the package is unaffected.
        for part in [*inner[:-1], ""]:
            shell = ModuleType(path)
            shell.__path__ = [folder]
            sys.modules[path] = shell
            folder, path = f"{folder}/{part}", f"{path}.{part}"
        return import_module(name)
    finally:
        for each in [each for each in sys.modules if each.partition(".")[0] == package]:
            del sys.modules[each]
