"""System faults: full and read-only disks, clock changes, two writers, and more.

A trial injects one fault into a command, perhaps kills it as well, removes the fault, and runs the
same command again. Under the fault, the command must not crash, hang or print a traceback, and must
state in a paragraph why it failed; afterwards it must produce the bytes of an undisturbed run.
"""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from bench.endurance.commands import COMMANDS, contents
from bench.endurance.disk_faults import full_disk, read_only, small_files
from bench.endurance.evidence import Evidence
from bench.endurance.kills import Undisturbed, differences, measure
from bench.endurance.process_faults import (
    clock_steps,
    damaged_work,
    few_resources,
    no_terminal,
    permissions,
    two_writers,
    worker_signals,
)
from bench.endurance.trial import Trial

_PLAIN = tuple(command for command in COMMANDS if "--workers" not in command.arguments)
_WORKERS = tuple(command for command in COMMANDS if "--workers" in command.arguments)


_FAULTS: dict[str, Callable[[Trial], str | None]] = {
    "disk full": full_disk,
    "size of files limited": small_files,
    "read-only disk": read_only,
    "clock steps": clock_steps,
    "two writers": two_writers,
    "permissions": permissions,
    "signals to workers": worker_signals,
    "few files, little memory": few_resources,
    "no terminal": no_terminal,
    "damaged unfinished work": damaged_work,
}


def faults(
    evidence: Evidence, project: Path, work: Path, count: int, seed: int, until: float
) -> None:
    """Run `count` trials, or as many as the time allows."""
    known: dict[str, Undisturbed] = {}
    number = 0
    while number < count and time.monotonic() < until:
        rng = random.Random(f"{seed}-{number}")
        what = rng.choice([*_FAULTS])
        command = rng.choice(_WORKERS if what == "signals to workers" else _PLAIN)
        if command.name not in known:
            known[command.name] = measure(command, project, work)
        trial = Trial(command, known[command.name], work / "trial", work / "trial.txt", rng, {})
        shutil.rmtree(trial.folder, ignore_errors=True)
        shutil.copytree(trial.known.starts["fresh"], trial.folder)
        trial.story |= {"command": " ".join(command.arguments), "what": what}
        fault = _FAULTS[what](trial) or _afterwards(trial)
        ends = [status for status, _ in trial.story.get("ends", [])]
        evidence.tried[what] += bool(ends)
        ending = "refused" if 1 in ends else "done" if ends else "without the fault"
        evidence.endings[what, ending] += 1
        if fault:
            story = {"fault": f"{command.name}: {fault}"} | trial.story
            evidence.fault(what, number, story, trial.folder)
        number += 1
    print(f"{number} faults of the system")


def _afterwards(trial: Trial) -> str | None:
    running = trial.start()
    status = running.finish(trial.limit)
    trial.story["printed last"] = running.text()
    if status:
        return f"without the fault the command ended with {status}"
    return differences(contents(trial.folder), trial.known.after)
