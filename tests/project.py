"""Where the project and the shared data are, and how a command is called and ended."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SHARED = PROJECT.parent / "shared"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


Call = Callable[..., Ended]
