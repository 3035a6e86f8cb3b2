"""One command in one project under a fault of the system, and what is wrong with how it ends."""

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
    """One command and its project, under a fault.

    Attributes
    ----------
    command, known : the command, and what it does undisturbed.
    folder : of the project. `said` : file with the output of the command.
    rng : draws what differs between trials.
    story : grows; it is kept if the trial fails. `ends` has status and text of each command that
        had the fault.
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
        """Return a random moment of the time of the command."""
        return self.rng.uniform(0, self.known.seconds)

    def end(self, running: Running) -> str | None:
        """Wait for the end of a command under a fault; return what is wrong with it, or None."""
        status = running.finish(self.limit)
        text = running.text()
        self.story.setdefault("ends", []).append([status, text])
        if status == HUNG:
            return "the command did not end"
        if "Traceback" in text:
            return "a traceback"
        if status not in (0, 1, 2, -signal.SIGKILL):
            return f"status {status}"
        if status == 1 and "pipeline: error:" not in text:
            return "status 1 without a reason"
        return None


def perhaps_killed(trial: Trial, running: Running) -> None:
    """Kill a command at a random moment, or let it be."""
    if trial.rng.random() < 0.3 and running.wait(trial.moment()) is None:
        running.signal_all(signal.SIGKILL)


def not_whole(trial: Trial) -> str | None:
    """Return a file under its final name that is half-written; None if there is none."""
    return half_written(trial.folder, trial.known, "fresh")
