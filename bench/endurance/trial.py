"""One command in one project under a system fault, and what is wrong with its outcome."""

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.endurance.commands import Command
from bench.endurance.kills import Undisturbed, half_written
from bench.endurance.running import HUNG, Running, start


@dataclass
class Trial:
    """One command and its project under a fault.

    Attributes
    ----------
    command, known : the command, and its undisturbed result.
    folder : folder of the project.
    said : file with the output of the command.
    rng : random generator of the trial.
    story : log of the trial, kept if it fails.
    ends : status and output of each command that had the fault.
    """

    command: Command
    known: Undisturbed
    folder: Path
    said: Path
    rng: random.Random
    story: dict[str, Any]

    @property
    def limit(self) -> float:
        """Time limit of the command in seconds."""
        return self.known.seconds * 10 + 90

    def start(self, prepare: Callable[[], object] = int, said: str = "") -> Running:
        """Start the command."""
        return start(
            self.command.arguments,
            self.folder,
            self.said.with_suffix(f".{said}txt"),
            prepare=prepare,
        )

    def moment(self) -> float:
        """Return a random moment within the duration of the command."""
        return self.rng.uniform(0, self.known.seconds)

    def end(self, running: Running) -> str | None:
        """Wait for a command under a fault; return what is wrong with its exit, or None."""
        status = running.finish(self.limit)
        text = running.text()
        self.story.setdefault("ends", []).append([status, text])
        if status == HUNG:
            return "the command did not end"
        if "Traceback" in text:
            return "a traceback"
        if status not in (0, 1, 2, -signal.SIGKILL):
            return f"status {status}"
        if status == 1 and not ("pipeline: error:" in text or "not made:" in text):
            return "status 1 without a reason"
        return None


def perhaps_killed(trial: Trial, running: Running) -> None:
    """Kill a command at a random moment, or let it finish."""
    if trial.rng.random() < 0.3 and running.wait(trial.moment()) is None:
        running.signal_all(signal.SIGKILL)


def not_whole(trial: Trial) -> str | None:
    """Return a partially written file under its final name; None if there is none."""
    return half_written(trial.folder, trial.known, "fresh")
