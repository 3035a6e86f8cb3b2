"""The captions of a cell: a text, a list, or a list that a program has written as a text."""

import ast
import re
from typing import Any

from pipeline.datasets.readers.tables.table import RowFault
from pipeline.store.schema import SchemaError, decode

_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_ITEM = rf"(?:np\.str_\({_QUOTED}\)|{_QUOTED})"
# As Python, numpy and PostgreSQL print lists: items between commas, or between blanks alone.
_PRINTED = re.compile(
    rf"(?:array\()?([\[({{]\s*{_ITEM}(?:(?:\s*,\s*|\s+){_ITEM})*\s*,?\s*[\])}}])"
    r"(?:(?:,\s*dtype=.*)?\))?",
    re.DOTALL,
)
_TEXTS = re.compile(_QUOTED, re.DOTALL)
# "[music]", 'a man (in "red")' and '["Stop"] on a sign' are captions; these are lists of others.
_LISTS = re.compile(
    "|".join(
        (
            r"[\[{].*,.*[\]}]",  # [A dog, A cat]
            r"""(?:[\w.]*[\[{]|[\w.]+\()+\s*\w{0,3}['"].*[\])}]""",  # c("A dog", "A cat")
            r"""[\[{]\s*\w{0,3}['"][^\]}]*""",  # ["A dog", "A c
            r"(?:ArraySeq|List|WrappedArray)\(.*\)",  # Spark
            r"\w[\w.]*\((?:\s*[\[({].*)?\)|<[\w.]+[>:]\s*\[.*",  # deque([]), <StringArray> [
            r"a:\d+:\{.*",  # PHP
            r'"\s*[\[{].*[\]}]\s*"',  # a list in quotes
            rf"{_QUOTED}(?:\s*[,;\n]\s*{_QUOTED})+",  # "A dog", "A cat"
            r"(?:[-*]|\d+[.)]) [^\n]*(?:\n+(?:[-*]|\d+[.)]) [^\n]*)+",  # a list of lines
        )
    ),
    re.DOTALL,
)


def texts_of(value: Any, name: str) -> list[str]:
    """Return the captions of a cell of the column `name`: none, one, or a list."""
    if isinstance(value, str):
        value = _written(value, name)
    if value is None or (isinstance(value, float) and value != value):
        return []
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = [_answer(value, name)]
    if not isinstance(value, list | tuple):
        raise RowFault("unusable caption", f"{name}: Expected `str`, found {value!r:.60}")
    for k, text in enumerate(value):
        if not isinstance(text, str):
            raise RowFault("unusable caption", f"{name}[{k}]: Expected `str`, found {text!r:.60}")
    return list(value)


def _answer(turns: list[Any], name: str) -> str:
    """Return the answer of a conversation in LLaVA's format, which is a caption of its image."""
    match turns:
        case [{"from": "human"}, {"from": "gpt", "value": str(answer)}]:
            return answer
    raise RowFault(
        "unusable caption",
        f"{name}: expected LLaVA's conversation of one question and its answer, which is the "
        f"caption, found a list of {len(turns)} objects",
    )


def _written(text: str, name: str) -> Any:
    """Return the value of JSON, or of a printed list; else the text as the only item."""
    cell = text.strip()
    if cell[:1] in ("[", "{"):
        try:
            return decode(cell, Any)
        except SchemaError:
            pass
    if printed := _PRINTED.fullmatch(cell):
        try:
            texts = [ast.literal_eval(item) for item in _TEXTS.findall(printed[1])]
        except (SyntaxError, ValueError):
            texts = []
        # '("A dog")' and "{'A dog'}" are texts in brackets, not lists.
        if len(texts) > 1 or (texts and (cell[0] in "[a" or printed[1][:-1].rstrip()[-1] == ",")):
            return texts
    if _LISTS.fullmatch(cell):
        raise RowFault(
            "unusable caption",
            f"{name}: {cell!r:.60} is like a list of texts, but not in the form of JSON, Python or "
            "numpy; write it as JSON",
        )
    return [text]
