"""Runs the examples of a page of the guide; `python -m tests.guide PAGE...` stores their output.

A page runs from its first line to its last, in an empty folder. What is executed:

- ```` ```console ````: each line after `$ ` is a command, what follows is its output. A line `...`
  in an output is any number of lines; they stay out when output is stored.
- ```` ```bash ````: each line is a command, whose output is not shown.
- ```` ```python ````: one namespace per page. After `>>> ` the output is compared, otherwise the
  block runs as a program.
- A block with `title="NAME"` is written to the file NAME.
- `<!--run` ... `-->` holds commands, and `<!--python` ... `-->` a program, that readers do not see.
- `<!--needs NAME, NAME-->` names modules of extras, without which the page is skipped.

Any other block of commands (```` ```sh ````) follows `<!--not run: REASON-->`. `...` in a line is
any text. Hashes, times and the last digits of decimals vary between machines, so they are compared
by their form or roughly.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.in_process import status_of
from tests.project import PROJECT

BLOCK = re.compile(
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$"
    r"|^<!--(?P<hidden>run|python)\n(?P<code>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"^\$ ((?:[^\\\n]|\\\n|\\.)*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_SHELL = re.compile(r"[|<>;&$*`]")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
_RULE = re.compile(r"-{2,}|─+")


class ExampleError(AssertionError):
    """An example fails, or prints something else than its page."""


def run_page(text: str, fill: bool = False) -> str:
    """Run the examples of a page in the current folder; return the page with their outputs.

    Raises
    ------
    ExampleError
        An example fails; or, without `fill`, prints something else than the page.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    # click would print `python -m pytest.pipeline` as the name of the program.
    sys.modules["__main__"].__package__ = ""

    def run(block: re.Match[str]) -> str:
        kind, body = block["kind"] or block["hidden"], block["body"] or block["code"]
        if block["title"]:
            path = Path(block["title"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
        elif kind in ("run", "bash"):
            for line in body.replace("\\\n", "").splitlines():
                _command(re.sub(r"\s+# .*", "", line).removeprefix("$ "))
        elif kind == "console":
            done = COMMAND.sub(lambda hit: _console(hit[1], hit[2], fill), body)
            return block[0].replace(body, done) if fill else block[0]
        elif kind == "python" and ">>> " in body:
            done = "".join(_python(body, names, fill))
            return block[0].replace(body, done) if fill else block[0]
        elif kind == "python":
            _execute(body, "exec", names)
        return block[0]

    return BLOCK.sub(run, text)


def _console(command: str, expected: str, fill: bool) -> str:
    """Run a command, and return it with its output."""
    found = _command(command.replace("\\\n", ""), "exit status" in expected)
    found = shortened(found, expected) if fill else found
    if not fill and not same(found, expected):
        raise ExampleError(f"$ {command}\n{found}\nis not what the page has:\n{expected}")
    return f"$ {command}\n{found}"


def _command(command: str, may_fail: bool = False) -> str:
    """Return what a command prints, and its exit status if it is not 0."""
    if command.startswith("pipeline ") and not _SHELL.search(command):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = status_of(*shlex.split(command)[1:])
        text = printed.getvalue()
    else:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(PROJECT)},
        )
        text, status = ended.stdout, ended.returncode
    text = text.replace(f"{Path.cwd()}/", "")
    if status and not may_fail:
        raise ExampleError(f"$ {command}\n{text}exit status {status}")
    return text + (f"exit status {status}\n" if status else "")


def _python(body: str, names: dict[str, object], fill: bool) -> Iterator[str]:
    """Run the statements of a session, and yield its parts with their outputs."""
    for part in doctest.DocTestParser().parse(body):
        if isinstance(part, str):
            yield part
            continue
        found = _execute(part.source, "single", names)
        found = shortened(found, part.want) if fill else found
        if not fill and not same(found, part.want):
            raise ExampleError(f"{part.source}{found}\nis not what the page has:\n{part.want}")
        first, *rest = part.source.splitlines(keepends=True)
        yield "".join([f">>> {first}", *(f"... {line}" for line in rest), found])


def _execute(source: str, mode: str, names: dict[str, object]) -> str:
    """Return what a program prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(source, "example", mode), names)
    return printed.getvalue()


def shortened(found: str, expected: str) -> str:
    """Leave out as many lines in the middle as `...` replaces in an output."""
    lines, pattern = found.strip("\n").splitlines(), expected.splitlines()
    if "..." in pattern:
        head = pattern.index("...")
        tail = len(pattern) - head - 1
        lines = [*lines[:head], "...", *lines[max(head, len(lines) - tail) :]]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def same(found: str, expected: str) -> bool:
    """Return whether two outputs are equal, but for hashes, times and last digits."""
    expected = expected.strip()
    lines, pattern = shortened(found, expected).splitlines(), expected.splitlines()
    return len(lines) == len(pattern) and all(map(_alike, lines, pattern))


def _alike(found: str, expected: str) -> bool:
    """Return whether two lines have the same words, whole numbers, and about the same decimals."""
    found, expected = (
        " ".join(_RULE.sub("--", _HASH.sub("#", line)).split()) for line in (found, expected)
    )
    form = re.escape(_NUMBER.sub("#", expected)).replace(r"\.\.\.", ".*")
    if not re.fullmatch(form, _NUMBER.sub("#", found)):
        return False
    if "..." in expected:
        return True
    table = expected.startswith("|")
    for one, other in zip(_NUMBER.finditer(found), _NUMBER.finditer(expected), strict=True):
        timed = re.match(r" (s|ms)\b|( \w+)?/s\b", expected[other.end() :])
        a, b = (float(number[0].replace(",", "")) for number in (one, other))
        rough = "." in other[0] or "e" in other[0] or table
        if not timed and a != b and not (rough and abs(a - b) <= max(0.3 * abs(b), 12 * table)):
            return False
    return True


def main() -> None:
    """Store the outputs of the examples in the given pages."""
    for argument in sys.argv[1:]:
        page = Path(argument).resolve()
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            filled = run_page(text, fill=True)
        page.write_text(filled, encoding="utf-8")
        sys.stdout.write(f"{argument}: {len(BLOCK.findall(text))} blocks\n")


if __name__ == "__main__":
    main()
