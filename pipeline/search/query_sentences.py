"""Sentences to search with: read from a file, and checked."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.datasets.checks import check_caption
from pipeline.retrieval.search import SearchError


def read_sentences(path: str | Path) -> list[str]:
    """Read the sentences of a file of UTF-8 text, one a line.

    Raises
    ------
    SearchError
        It is not UTF-8, or a line is refused by `require_lines`.
    """
    path = Path(path)
    try:
        texts = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise SearchError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from error
    require_lines(texts, f"{path}: line")
    return texts


def require_lines(texts: Sequence[str], what: str = "sentence or word") -> None:
    """Check that each text is one line with a word in it.

    Parameters
    ----------
    what : str. What an error calls a text, before its number.

    Raises
    ------
    SearchError
    """
    for number, text in enumerate(texts, 1):
        if fault := check_caption(text):
            raise SearchError(
                f"{what} {number} of {len(texts)}, {text!r}, {fault}; each is asked as one line of "
                "text with a word in it"
            )
