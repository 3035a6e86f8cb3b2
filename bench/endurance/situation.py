"""What a situation is: how a project is changed, and where and how a command then runs in it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    """Where a command runs.

    Attributes
    ----------
    folder : working folder.
    inside : called in the process of the command before it starts.
    argument : returns another form of an argument.
    """

    folder: Path
    inside: Callable[[], object] = int
    argument: Callable[[str], str] = str


@dataclass(frozen=True)
class Situation:
    """A situation of the campaign.

    Attributes
    ----------
    arrange : changes a project, and on exit changes it back.
    refusable : whether a command may state why it cannot work in it.
    differing : files that rightly differ from those of an undisturbed run.
    """

    arrange: Callable[[Path], AbstractContextManager[Setting]]
    refusable: bool = False
    differing: tuple[str, ...] = ()
