"""Where the project and the shared data are, contents of folders, ends of commands, a monitor."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.store.progress import Progress

PROJECT = Path(__file__).resolve().parents[1]
SHARED = PROJECT.parent / "shared"


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of each file of a folder that has no folders."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


Call = Callable[..., Ended]


class Recorder:
    """A monitor that keeps what a job gives it, and may interrupt the job.

    Attributes
    ----------
    lines : that were logged.
    steps : (what, unit, done, total, failed) of every call of a progress.
    """

    def __init__(self, interrupt_at: int | None = None, unit: str | None = None) -> None:
        """Take how much, of a unit or of any, may be done before the job is interrupted."""
        self.lines: list[str] = []
        self.steps: list[tuple[str, str, int, int, int]] = []
        self._interrupt_at, self._unit = interrupt_at, unit

    def log(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)

    @contextmanager
    def progress(self, what: str, unit: str) -> Iterator[Progress]:
        """Give a function that keeps its arguments."""

        def show(done: int, total: int, failed: int) -> None:
            self.steps.append((what, unit, done, total, failed))
            if done == self._interrupt_at and self._unit in (None, unit):
                raise KeyboardInterrupt

        yield show
