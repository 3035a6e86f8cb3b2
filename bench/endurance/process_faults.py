"""Process faults: clocks, other writers, permissions, signals, limits, streams, damaged work files.

Permissions do not apply to root, so commands then run as the user `nobody`.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from bench.endurance.commands import contents
from bench.endurance.damage.formats import damage
from bench.endurance.trial import Trial, not_whole

_NOBODY = 65534


def clock_steps(trial: Trial) -> str | None:
    """Shift the clock and all file times by years between two runs."""
    running = trial.start()
    if running.wait(trial.moment()) is None:
        running.signal_all(signal.SIGKILL)
    running.finish(trial.limit)
    for path in trial.folder.rglob("*"):
        if trial.rng.random() < 0.5:
            year = trial.rng.choice((0, 1, -1, 946684800, 4102444800, 2**33))
            os.utime(path, (year, year), follow_symlinks=False)
    offset = trial.rng.choice((-(10.0**9), 10.0**9, -3600.0))

    def step() -> None:
        real, asked = time.time, [0]

        def stepping() -> float:
            asked[0] += 1
            return real() + (offset if asked[0] % 2 else 0)

        time.time = stepping

    return trial.end(trial.start(step))


def two_writers(trial: Trial) -> str | None:
    """Run the command twice at nearly the same time, perhaps killing one of them."""
    first = trial.start()
    first.wait(trial.moment() * trial.rng.choice((0, 0.3, 1)))
    second = trial.start(said="second.")
    if trial.rng.random() < 0.3:
        victim = trial.rng.choice((first, second))
        if victim.wait(trial.moment()) is None:
            victim.signal_all(signal.SIGKILL)
    return trial.end(first) or trial.end(second) or not_whole(trial)


def permissions(trial: Trial) -> str | None:
    """Remove permissions of a file or folder at a random moment; the command runs as nobody."""
    if os.geteuid() != 0 or not _nobody_has_python():
        return None
    for path in (trial.folder, *trial.folder.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)

    def be_nobody() -> None:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)

    running = trial.start(be_nobody)
    if trial.rng.random() < 0.7:
        running.wait(trial.moment())
    changed = []
    paths = sorted(trial.folder.rglob("*"))
    for path in trial.rng.sample(paths, min(len(paths), trial.rng.choice((1, 3, 20)))):
        with suppress(OSError):
            changed.append((path, path.stat().st_mode))
            path.chmod(trial.rng.choice((0o000, 0o400, 0o555)))
    trial.story["changed"] = [str(path) for path, _ in changed]
    fault = trial.end(running)
    if fault is None and trial.rng.random() < 0.5:
        fault = trial.end(trial.start(be_nobody))
    for path, mode in changed:
        with suppress(OSError):
            path.chmod(mode)
    return fault or not_whole(trial)


def worker_signals(trial: Trial) -> str | None:
    """Kill or stop a worker at a random moment; the command must continue or state why not."""
    running = trial.start()
    kind = trial.rng.choice(
        (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGSEGV, signal.SIGHUP)
    )
    trial.story["signal"] = kind.name
    if running.wait(trial.moment()) is None and (others := running.workers()):
        pid = trial.rng.choice(others)
        with suppress(ProcessLookupError):
            os.kill(pid, kind)
            if kind == signal.SIGSTOP:
                time.sleep(trial.rng.uniform(0.1, 3))
                os.kill(pid, signal.SIGCONT)
    return trial.end(running) or not_whole(trial)


def few_resources(trial: Trial) -> str | None:
    """Limit open files or memory."""
    what, size = trial.rng.choice(
        ((resource.RLIMIT_NOFILE, 12), (resource.RLIMIT_NOFILE, 24), (resource.RLIMIT_AS, 2**26),
         (resource.RLIMIT_AS, 2**27), (resource.RLIMIT_AS, 2**28), (resource.RLIMIT_AS, 2**29))
    )  # fmt: skip
    trial.story["limit"] = what, size

    def limit() -> None:
        more = 0
        if what == resource.RLIMIT_AS:
            more = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(what, (more + size, more + size))

    return trial.end(trial.start(limit)) or not_whole(trial)


def no_terminal(trial: Trial) -> str | None:
    """Close the other end of stdout and stderr, as `| head` does, or write to a full device."""
    kind = trial.rng.choice(("closed pipe", "full device", "none at all"))
    trial.story["streams"] = kind

    def connect() -> None:
        if kind == "none at all":
            os.close(1)
            os.close(2)
            return
        if kind == "full device":
            to = os.open("/dev/full", os.O_WRONLY)
        else:
            reading, to = os.pipe()
            os.close(reading)
        os.dup2(to, 1)
        os.dup2(to, 2)

    status = trial.start(connect).finish(trial.limit)
    trial.story["ends"] = [[status, ""]]
    allowed = {0, 1, -signal.SIGPIPE, 120, 141}
    return not_whole(trial) if status in allowed else f"status {status} with {kind}"


def damaged_work(trial: Trial) -> str | None:
    """Kill the command, damage its unfinished work, and run it again."""
    running = trial.start()
    if running.wait(trial.moment()) is None:
        running.signal_all(signal.SIGKILL)
    running.finish(trial.limit)
    new = contents(trial.folder).keys() - trial.known.before["fresh"].keys()
    left = [trial.folder / name for name in sorted(new) if not name.endswith(".lock")]
    if not left:
        return None
    path = trial.rng.choice(left)
    other = trial.rng.choice(left).read_bytes()
    trial.story["damaged"] = f"{damage(trial.rng, path, other)} of {path.relative_to(trial.folder)}"
    if (fault := trial.end(trial.start())) or trial.story["ends"][-1][0] == 0:
        return fault
    if ".work" not in path.parts and ".part" not in path.name:
        path.unlink()  # an error may ask for that where the file is finished
    return None


def _nobody_has_python() -> bool:
    """Return whether the user `nobody` may run this Python and read its modules."""
    try:
        ended = subprocess.run(
            [sys.executable, "-c", "import email.policy"],
            user=_NOBODY, group=_NOBODY, capture_output=True, check=False,
        )  # fmt: skip
    except PermissionError:
        return False
    return ended.returncode == 0
