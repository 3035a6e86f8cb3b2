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
    """Split a caption; a full stop between two sentences is a word too.

    "A dog's ball. It isn't red" becomes "A", "dog", "'s", "ball", ".", "It", "is", "n't", "red".
    """
    text = _INNER_STOP.sub(" .", text)
    # Fast path: most captions need none of nltk's rules, which are many times slower.
    words = _LAST_STOP.sub(" .", text.replace(", ", " , ")).split()
    return words if all(map(_PLAIN_WORD.fullmatch, words)) else nltk_words(text)


def nltk_words(text: str) -> list[str]:
    """Split one sentence like `nltk.tokenize.NLTKWordTokenizer().tokenize(text)`."""
    return _tokenize()(text)


@cache
def _tokenize() -> Callable[[str], list[str]]:
    """Return the method of nltk's tokenizer, imported without its packages.

    `import nltk` imports all of nltk, and scipy.stats.
    """
    try:
        return _method(import_alone("nltk.tokenize.destructive"))
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Treebank words need the package nltk: pip install nltk"
        ) from error


def _method(module: ModuleType) -> Callable[[str], list[str]]:
    tokenize: Callable[[str], list[str]] = module.NLTKWordTokenizer().tokenize
    return tokenize


def import_alone(name: str) -> ModuleType:
    """Import a module without running the `__init__` of its packages.

    Empty modules with the packages' paths replace them during the import and are removed
    afterwards, so that a later import of the package is unaffected. If the package is already
    imported, the module is imported as usual.

    Parameters
    ----------
    name : str. Name of the module, such as "nltk.tokenize.destructive".

    Raises
    ------
    ModuleNotFoundError
        The package is not installed.
    """
    package, *inner = name.split(".")
    if package in sys.modules:
        return import_module(name)
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    folder, path = found.submodule_search_locations[0], package
    try:
        for part in [*inner[:-1], ""]:
            shell = ModuleType(path)
            shell.__path__ = [folder]
            sys.modules[path] = shell
            folder, path = f"{folder}/{part}", f"{path}.{part}"
        return import_module(name)
    finally:
        for each in [each for each in sys.modules if each.partition(".")[0] == package]:
            del sys.modules[each]
