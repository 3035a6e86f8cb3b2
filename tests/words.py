"""Words that this project does not use, where they are read: pages, docstrings, messages, comments.

`python -m tests.words PATH...` lists them by file and line; without a path it counts all.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.project import PROJECT

# Expression of what is not written, and what is; docs/lab/style.md has the same table.
WORDS = {
    r"gives?|gave|giving": "returns, yields, produces; pass",
    r"takes?(?! (?:\d|about|longer|at most|less|more|up to|a (?:minute|second|day|while)|hours|"
    r"minutes|seconds|time|effect|part|precedence|place))|taking": "accepts, loads, uses",
    r"says?|said|saying": "states, records, prints",
    r"tells?|told|telling": "logs, states, returns whether",
    r"pictures?": "image",
    r"(?<!there )(?:is|are) (?:none|no(?= (?!longer|more|faster|slower|better)))": (
        "is not, does not exist"
    ),
    r"lies?|lay": "is stored in, is",
    r"stands?|stood": "appears, is",
    r"came|coming": "arrive, are received, next",
    r"beside": "next to, with",
    r"(?<!segmentation )faults?": "error, reason, defect",
    r"wanted": "expected, requested",
    r"go(?:es)? on|going on|went on": "resumes, continues",
    r"(?:what|that|which|it|they|who) (?:is|are) (?:not )?there": "exists, is missing",
    r"made (?:again|anew)|makes? again": "recomputed, rebuilt",
    r"mend(?:s|ed|ing)?": "fix",
    r"whole or not at all": "atomically",
    r"to be had|can be had": "available",
    r"puts? down|takes? back": "save, load",
    r"in its company": "batch-dependent",
    r"hollow": "sparse",
    r"anybody|whoever": "any user; rephrase",
}
_PATTERN = re.compile("|".join(rf"\b(?:{word})\b" for word in WORDS), re.IGNORECASE)
_CODE_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"^ *[\w*]+(?:, [\w*]+)* : ", re.MULTILINE)  # of parameters
_CODE = re.compile(r"`[^`\n]+`|\]\([^)\n]*\)|<[^>\n]+>")


class Found(NamedTuple):
    """A word that is not used, and where it is."""

    path: str
    line: int
    word: str
    text: str


def found_in(path: Path) -> list[Found]:
    """Return the words in a page or a module that are in the list, in order."""
    source = path.read_text(encoding="utf-8")
    pieces = _of_module(source) if path.suffix == ".py" else _of_page(source)
    name = path.relative_to(PROJECT).as_posix()
    return [
        Found(name, first + text.count("\n", 0, hit.start()), hit[0], _line(text, hit.start()))
        for first, text in pieces
        for hit in _PATTERN.finditer(text)
    ]


def read_by_people() -> list[Path]:
    """Return the files whose texts are checked: all pages and modules but tests."""
    pages = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
    modules = [
        p for folder in ("pipeline", "stages", "bench") for p in (PROJECT / folder).rglob("*.py")
    ]
    return [*pages, *sorted(modules)]


def _of_page(source: str) -> Iterator[tuple[int, str]]:
    """Yield the text of a page, with code blanked out."""
    blank = lambda hit: re.sub(r"[^\n]", " ", hit[0])  # noqa: E731
    yield 1, _CODE.sub(blank, _CODE_BLOCK.sub(blank, source))


def _of_module(source: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, sentences in string literals, and comments, each with its first line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            text = _NAMES.sub(lambda hit: " " * len(hit[0]), node.value)
            yield node.lineno, _CODE.sub(lambda hit: " " * len(hit[0]), text)
    # Most modules have no such comment, and tokens are slow to find.
    if any(_PATTERN.search(line, line.index("#")) for line in source.splitlines() if "#" in line):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def _line(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0].strip()


def main() -> None:
    """Print the words of the given files or folders, or the count of each in the project."""
    if len(sys.argv) == 1:
        hits = [hit for path in read_by_people() for hit in found_in(path)]
        counts = Counter(hit.word.lower() for hit in hits)
        lines = [f"{count:5} {word}" for word, count in counts.most_common()]
        sys.stdout.write("\n".join([*lines, f"{len(hits):5} in all", ""]))
        return
    for argument in sys.argv[1:]:
        path = Path(argument).resolve()
        inside = (p for p in path.rglob("*") if p.suffix in (".py", ".md"))
        for file in sorted(inside) if path.is_dir() else [path]:
            for hit in found_in(file):
                sys.stdout.write(f"{hit.path}:{hit.line}: {hit.word}: {hit.text}\n")


if __name__ == "__main__":
    main()
