"""Situations: every command once in each place and under each condition in which people run it.

A situation changes where the project is (`places`) or what the process finds (`conditions`). A
command must produce the bytes of an undisturbed run, or, where a situation allows it, state in a
paragraph why it cannot and produce them once the situation is over.
"""

import random
import shutil
import time
from itertools import product
from pathlib import Path

from bench.endurance.commands import (
    COMMANDS,
    LITE,
    NETWORK,
    Command,
    contents,
    remove,
    undisturbed,
)
from bench.endurance.conditions import CONDITIONS
from bench.endurance.evidence import Evidence
from bench.endurance.kills import differences
from bench.endurance.places import PLACES
from bench.endurance.running import HUNG, Running, start

_EMBEDDING = f"data/embeddings/scenes/{NETWORK}.h5"

_READING = tuple(
    Command(text, tuple(text.split()), tuple(makes))
    for text, *makes in (
        (f"search red --experiment {NETWORK} --dataset data/scenes",),
        (f"search --image scene-00003 --features data/features/scenes/{LITE}",),
        (f"duplicates data/features/scenes/{LITE}",),
        (f"compare {_EMBEDDING} {_EMBEDDING}",),
        (f"export {NETWORK} --dataset data/scenes --to torch --out made/export", "made/export"),
        (f"shards verify data/features/scenes/{LITE}",),
        (f"shards push data/features/scenes/{LITE} made/shared", "made/shared"),
        ("list experiments",),
    )
)

_STATUSES = (0, 1, 2)


def situations(
    evidence: Evidence, project: Path, work: Path, count: int, seed: int, until: float
) -> None:
    """Try pairs of a situation and a command in random order, at most `count`."""
    known: dict[Command, tuple[float, dict[str, str]]] = {}  # seconds, files
    commands = [c for c in COMMANDS if "--workers" not in c.arguments]
    pairs = list(product({**PLACES, **CONDITIONS}.items(), [*commands, *_READING]))
    random.Random(seed).shuffle(pairs)
    refusals: dict[str, set[str]] = {}
    for number, ((what, situation), command) in enumerate(pairs[:count]):
        if time.monotonic() >= until:
            break
        folder, said = work / "trial", work / "trial.txt"
        if command not in known:
            _lay_out(project, command, folder)
            known[command] = undisturbed(command.arguments, folder), contents(folder)
        seconds, expected = known[command]
        _lay_out(project, command, folder)
        with situation.arrange(folder) as setting:
            arguments = [setting.argument(argument) for argument in command.arguments]
            running = start(arguments, setting.folder, said, prepare=setting.inside)
            running.finish(seconds * 10 + 90)
        fault = _fault(running, situation.refusable)
        text = running.text()
        if not fault and running.status:
            refusals.setdefault(what, set()).add(text[text.find("pipeline: error:") :].strip())
            again = start(command.arguments, folder, said)
            if again.finish(seconds * 10 + 90):
                fault = f"afterwards it ended with {again.status}: {again.text()}"
        fault = fault or differences(
            *(
                {name: digest for name, digest in of.items() if name not in situation.differing}
                for of in (contents(folder), expected)
            )
        )
        evidence.tried[what] += 1
        evidence.endings[what, "refused" if running.status else "done"] += 1
        if fault:
            story: dict[str, object] = {
                "fault": f"{command.name}: {fault}",
                "command": command.arguments,
            }
            evidence.fault(what, number, story, folder, text)
    for what, texts in sorted(refusals.items()):
        print(f"{what}, refused:", *sorted(texts), sep="\n    ")


def _lay_out(project: Path, command: Command, folder: Path) -> None:
    """Copy the project without the output of a command."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(project, folder)
    remove(folder, command.makes)


def _fault(running: Running, refusable: bool) -> str | None:
    """Return what is wrong with the end of a command; None if nothing is."""
    text = running.text()
    if running.status == HUNG:
        return "the command did not end"
    if "Traceback" in text:
        return "a traceback"
    if running.status not in _STATUSES:
        return f"status {running.status}"
    if running.status and not ("pipeline: error:" in text or "not made:" in text):
        return f"status {running.status} without a reason"
    if running.status and not refusable:
        return "refused"
    if others := running.others():
        return f"processes {others} outlive the command"
    return None
