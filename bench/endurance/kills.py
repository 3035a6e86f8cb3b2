"""Signals at random moments: the repeated command must produce the bytes of an undisturbed run.

A trial starts from the project without the command's output, with a finished output, or with an
output of other settings, which is replaced. The command is interrupted one to six times and then
runs undisturbed. The moment is uniform over the duration of the undisturbed command, in the first
0.2 s, or near the end.
"""

import random
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from bench.endurance.commands import COMMANDS, Command, contents, remove, undisturbed
from bench.endurance.evidence import Evidence
from bench.endurance.running import HUNG, Running, start

COLD_SHARE, FRESH_SHARE = 0.04, 0.8

_STRIKES = ("KILL all", "KILL one", "KILL worker", "TERM", "INT", "HUP", "STOP")
_WEIGHTS = (8, 8, 3, 2, 2, 1, 1)
_ORPHANS_SECONDS = 30.0


@dataclass(frozen=True)
class Undisturbed:
    """Result of an undisturbed command.

    Attributes
    ----------
    seconds : duration.
    starts : initial states of the project, with the same final bytes: `fresh`, `finished`, `older`.
    before, after : SHA-256 of the files of each initial state, and of the final state.
    """

    seconds: float
    starts: dict[str, Path]
    before: dict[str, dict[str, str]]
    after: dict[str, str]


def measure(command: Command, project: Path, work: Path) -> Undisturbed:
    """Run a command undisturbed from every initial state; keep the projects before and after."""
    name = command.name.replace(" ", "-").replace(",", "")
    starts = {begin: work / f"{name}.{begin}" for begin in ("fresh", "finished", "older")}
    shutil.copytree(project, starts["fresh"])
    remove(starts["fresh"], command.makes)
    shutil.copytree(starts["fresh"], starts["finished"])
    seconds = undisturbed(command.arguments, starts["finished"])
    after = contents(starts["finished"])
    if command.other:
        shutil.copytree(starts["fresh"], starts["older"])
        undisturbed((*command.arguments, *command.other), starts["older"])
    else:
        del starts["older"]
    before = {begin: contents(folder) for begin, folder in starts.items()}
    for begin in starts.keys() - {"fresh"}:
        again = work / "again"
        shutil.copytree(starts[begin], again)
        undisturbed(command.arguments, again)
        if fault := differences(contents(again), after):
            raise RuntimeError(f"{command.name}, {begin}, does not end in the same bytes: {fault}")
        shutil.rmtree(again)
    return Undisturbed(seconds, starts, before, after)


def kills(
    evidence: Evidence, project: Path, work: Path, count: int, seed: int, until: float
) -> None:
    """Interrupt commands `count` times, or until a moment of the monotonic clock."""
    known: dict[str, Undisturbed] = {}
    number = struck = 0
    shares = [c.share for c in COMMANDS]
    while struck < count and time.monotonic() < until:
        rng = random.Random(f"{seed}-{number}")
        command = rng.choices(COMMANDS, shares)[0]
        if command.name not in known:
            known[command.name] = measure(command, project, work)
        struck += _trial(command, known[command.name], evidence, work, rng, number)
        number += 1
        if number % 50 == 0:
            print(f"{struck} signals in {number} trials", flush=True)
    print(f"{struck} signals in {number} trials")


def _trial(
    command: Command,
    known: Undisturbed,
    evidence: Evidence,
    work: Path,
    rng: random.Random,
    number: int,
) -> int:
    folder, said = work / "trial", work / "trial.txt"
    shutil.rmtree(folder, ignore_errors=True)
    begin = "fresh" if rng.random() < FRESH_SHARE else rng.choice(list(known.starts))
    shutil.copytree(known.starts[begin], folder)
    story: dict[str, object] = {"command": " ".join(command.arguments), "start": begin}
    strikes: list[str] = []
    struck, fault = 0, None
    for attempt in range(rng.randint(1, 6)):
        cold = rng.random() < COLD_SHARE
        running = start(command.arguments, folder, said, cold)
        moment = _moment(rng, known.seconds) + (rng.uniform(0, 8) if cold else 0)
        strike = rng.choices(_STRIKES, _WEIGHTS)[0]
        ended = running.wait(moment) is not None
        if not ended:
            strike = _strike(running, strike, rng)
        status = running.finish(known.seconds * 10 + 90)
        strikes.append(f"{strike} after {moment:.3f} s{' (cold)' * cold}: {status}")
        story |= {"strikes": strikes, f"said {attempt}": running.text()}
        struck += not ended
        evidence.tried[command.name] += not ended
        evidence.endings[command.name, "too late" if ended else strike] += 1
        fault = _fault_of_end(status, strike, ended, running.text(), cold)
        fault = fault or _fault_of_orphans(running) or half_written(folder, known, begin)
        if fault:
            break
    if fault is None:
        running = start(command.arguments, folder, said)
        status = running.finish(known.seconds * 10 + 90)
        story["printed last"] = running.text()
        if status != 0:
            fault = f"the undisturbed command ended with {status}"
        else:
            fault = differences(contents(folder), known.after)
    if fault:
        fault = f"{fault} ({', '.join(strikes)})"
        evidence.fault(command.name, number, story | {"fault": fault}, folder, running.text())
    return struck


def _moment(rng: random.Random, seconds: float) -> float:
    kind = rng.random()
    if kind < 0.7:
        return rng.uniform(0, seconds)
    return rng.uniform(0, 0.2) if kind < 0.85 else rng.uniform(0.85, 1.05) * seconds


def _strike(running: Running, strike: str, rng: random.Random) -> str:
    """Signal a command; return what was signalled, since not every command has workers."""
    if strike == "KILL worker":
        others = running.workers()
        if not others:
            strike = "KILL one"
        else:
            Running(rng.choice(others), running.said, 0).signal(signal.SIGKILL)
    if strike == "KILL all":
        running.signal_all(signal.SIGKILL)
    elif strike == "KILL one":
        running.signal(signal.SIGKILL)
    elif strike == "STOP":
        running.signal_all(signal.SIGSTOP)
        time.sleep(rng.uniform(0.05, 0.5))
        running.signal_all(signal.SIGCONT)
    elif strike != "KILL worker":
        running.signal(signal.Signals[f"SIG{strike}"])
    return strike


def _fault_of_end(status: int, strike: str, ended: bool, said: str, cold: bool) -> str | None:
    """Return what is wrong with the exit of an interrupted command; None if nothing is."""
    if status == HUNG:
        return "the command did not end"
    if "Traceback" in said and not (cold and strike in ("INT", "TERM")):
        return "a traceback"
    if ended or strike in ("STOP", "KILL worker"):
        allowed = {0, 1} if strike == "KILL worker" and not ended else {0}
    else:
        allowed = {
            "KILL all": {-signal.SIGKILL, 0}, "KILL one": {-signal.SIGKILL, 0},
            "TERM": {128 + signal.SIGTERM, 0, -signal.SIGTERM},
            "INT": {128 + signal.SIGINT, 0, -signal.SIGINT},
            "HUP": {-signal.SIGHUP, 0},
        }[strike]  # fmt: skip
    if status not in allowed:
        return f"status {status} after {strike}"
    reason = status <= 0 or "pipeline: error:" in said
    return None if reason else f"status {status} without a reason"


def _fault_of_orphans(running: Running) -> str | None:
    """Wait until the processes of the command have ended; return a description if they do not."""
    end = time.monotonic() + _ORPHANS_SECONDS
    while others := running.others():
        if time.monotonic() > end:
            running.signal_all(signal.SIGKILL)
            return f"processes {others} outlive the command by {_ORPHANS_SECONDS:.0f} s"
        time.sleep(0.05)
    return None


def half_written(folder: Path, known: Undisturbed, begin: str) -> str | None:
    """Return a file under its final name with neither its old nor its final contents."""
    before = known.before[begin]
    for name, digest in contents(folder).items():
        if name in known.after and digest not in (known.after[name], before.get(name)):
            return f"{name} is under its final name and not whole"
    return None


def differences(found: dict[str, str], expected: dict[str, str]) -> str | None:
    """Return how a project differs from that of the undisturbed run; None if it does not."""
    lines = [f"{name} is missing" for name in expected if name not in found]
    lines += [f"{name} is left over" for name in found if name not in expected]
    lines += [
        f"{name} differs" for name in expected if found.get(name, "") not in ("", expected[name])
    ]
    return "; ".join(lines) or None
