"""Query sentences: reading from a file, and validation."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.datasets.checks import check_caption
from pipeline.retrieval import EmbeddingsError


def read_sentences(path: str | Path) -> list[str]:
    """Read query sentences from a UTF-8 text file, one per line."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise EmbeddingsError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from error
    texts = [line.removeprefix("\ufeff") for line in lines]
    require_lines(texts, f"{path}: line")
    return texts


def require_lines(texts: Sequence[str], what: str = "sentence or word") -> None:
    """Raise unless each text is a single line with at least one word; `what` names it."""
    for number, text in enumerate(texts, 1):
        if fault := check_caption(text):
            raise EmbeddingsError(
                f"{what} {number} of {len(texts)}, {text!r}, {fault}; expected one line of text "
                "with at least one word"
            )
