"""Replayed cases: the commands of `commands/*.txt`, for every family of outputs on tiny inputs.

A case begins with a line `[name]`, or `[name] after NAME ...` if it uses the outputs of other
cases. Each line below is a command, without `pipeline`; an indented line continues the previous
one. `=> 3` at the end is the expected exit status, if it is not 0. `cp FROM TO` copies a file or a
folder, `rm FILE` removes a file, `# ...` is a comment.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).with_name("commands")
_FILES = ("images", "regions", "clips", "captions", "heads", "language", "shards")


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes
    ----------
    arguments : tuple of str. Arguments of `pipeline`, or `cp FROM TO` or `rm FILE`.
    status : int. Expected exit status.
    """

    arguments: tuple[str, ...]
    status: int = 0

    def __str__(self) -> str:
        """Return the command line."""
        return shlex.join(self.arguments)


@dataclass(frozen=True)
class Case:
    """Commands that run one after the other.

    Attributes
    ----------
    name : str. Name of the case, for tables and `--only`.
    steps : tuple of Step. The commands.
    after : tuple of str. Cases whose outputs are inputs of this one.
    """

    name: str
    steps: tuple[Step, ...]
    after: tuple[str, ...] = ()


def parse_cases(text: str) -> Iterator[Case]:
    """Yield the cases of a file.

    Raises
    ------
    ValueError
        A command precedes the first case, or quotes are not closed.
    """
    name, after, steps = "", tuple[str, ...](), list[Step]()
    for line in text.replace("\n ", " ").splitlines():
        line = line.strip()
        if line.startswith("["):
            if name:
                yield Case(name, tuple(steps), after)
            name, _, rest = line[1:].partition("]")
            after, steps = tuple(rest.removeprefix(" after").split()), []
        elif line and not line.startswith("#"):
            if not name:
                raise ValueError(f"{line!r} precedes the first [case]")
            command, _, status = line.partition("=>")
            steps.append(Step(tuple(shlex.split(command)), int(status or 0)))
    if name:
        yield Case(name, tuple(steps), after)


def all_cases() -> list[Case]:
    """Return all cases in the order in which they run."""
    files = [_FOLDER / f"{name}.txt" for name in _FILES]
    return [case for file in files for case in parse_cases(file.read_text(encoding="utf-8"))]


def selected(names: Sequence[str] = ()) -> list[Case]:
    """Return cases by name with their prerequisites, in order; without names, all cases.

    Raises
    ------
    ValueError
        A name is unknown; the names are listed.
    """
    cases = all_cases()
    known = {case.name: case for case in cases}
    wanted = list(names or known)
    for name in wanted:
        if name not in known:
            raise ValueError(f"no case is named {name!r}; the cases are {', '.join(known)}")
        wanted += [before for before in known[name].after if before not in wanted]
    return [case for case in cases if case.name in wanted]
