"""What a system does to commands: full disks, read-only disks, wrong clocks, two writers, and more.

A trial gives a command one fault, perhaps kills it as well, takes the fault away, and gives the
same command again: the command must not crash, hang or print a traceback under the fault, says in a
paragraph why it failed, and must end in the bytes of the undisturbed run afterwards.

Disks are file systems in memory, which are mounted below the work folder; where that is not
allowed, the size of files is limited instead. Permissions do not bind root, so commands run as the
user `nobody` there.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.endurance.commands import COMMANDS, Command, contents
from bench.endurance.damage import damage
from bench.endurance.evidence import Evidence
from bench.endurance.kills import Undisturbed, differences, measure
from bench.endurance.running import HUNG, Running, start

_NOBODY = 65534
_PLAIN = tuple(command for command in COMMANDS if "--workers" not in command.arguments)
_WORKERS = tuple(command for command in COMMANDS if "--workers" in command.arguments)


@dataclass
class Trial:
    """One command and its project, under a fault.

    Attributes
    ----------
    folder : of the project. said : what the command says. limit : seconds that it may take.
    story : grows; it is kept if the trial fails.
    """

    command: Command
    known: Undisturbed
    folder: Path
    said: Path
    rng: random.Random
    story: dict[str, object]

    @property
    def limit(self) -> float:
        """Seconds that the command may take."""
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
        """Return a random moment of the time that the command takes."""
        return self.rng.uniform(0, self.known.seconds)

    def end(self, running: Running) -> str | None:
        """Wait for the end of a command under a fault; return what is wrong with it, or None."""
        status = running.finish(self.limit)
        text = running.text()
        self.story.setdefault("ends", [])
        self.story["ends"].append([status, text])  # type: ignore[attr-defined]
        if status == HUNG:
            return "the command did not end"
        if "Traceback" in text:
            return "a traceback"
        if status not in (0, 1, 2, -signal.SIGKILL):
            return f"status {status}"
        if status == 1 and "pipeline: error:" not in text:
            return "status 1 without a reason"
        return None


def faults(
    evidence: Evidence, project: Path, work: Path, count: int, seed: int, until: float
) -> None:
    """Make `count` trials, or as many as there is time for."""
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
        evidence.tried[what] += 1
        ends = [status for status, _ in trial.story.get("ends", [])]  # type: ignore[attr-defined]
        evidence.endings[what, "refused" if 1 in ends else "done"] += 1
        if fault:
            story = {"fault": f"{command.name}: {fault}"} | trial.story
            evidence.fault(what, number, story, trial.folder)
        number += 1
    print(f"{number} faults of the system")


def _afterwards(trial: Trial) -> str | None:
    running = trial.start()
    status = running.finish(trial.limit)
    trial.story["said at last"] = running.text()
    if status:
        return f"without the fault the command ended with {status}"
    return differences(contents(trial.folder), trial.known.after)


def _perhaps_killed(trial: Trial, running: Running) -> None:
    if trial.rng.random() < 0.3 and running.wait(trial.moment()) is None:
        running.signal_all(signal.SIGKILL)


def _full_disk(trial: Trial) -> str | None:
    """Fill the disk but for some bytes, fewer than the command needs."""
    needed = _bytes_of(trial.known.starts["finished"]) - _bytes_of(trial.folder)
    with _Disk(trial.folder) as mounted:
        if not mounted:
            return _small_files(trial)
        free = int(trial.rng.uniform(0, 1.2) * max(needed, 4096))
        trial.story["free"] = free
        ballast = trial.folder / "ballast"
        with ballast.open("wb", buffering=0) as stream, suppress(OSError):
            while True:
                stream.write(bytes(2**16))
        with ballast.open("rb+") as stream:
            stream.truncate(max(0, ballast.stat().st_size - free))
        running = trial.start()
        _perhaps_killed(trial, running)
        fault = trial.end(running)
        ballast.unlink()
        return fault or _half_written(trial)


def _small_files(trial: Trial) -> str | None:
    """Limit the size of files, as a quota does."""
    size = trial.rng.choice((0, 100, 1000, 5000, 20_000, 100_000))
    trial.story["limit"] = size

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    running = trial.start(limit)
    return _without_said(trial, running) or _half_written(trial)


def _without_said(trial: Trial, running: Running) -> str | None:
    """As `Trial.end`, where what the command says may be cut as well."""
    fault = trial.end(running)
    return None if fault == "status 1 without a reason" else fault


def _read_only(trial: Trial) -> str | None:
    """Make the disk read-only at some moment, or before the command starts."""
    with _Disk(trial.folder) as mounted:
        if not mounted:
            return None
        before = trial.rng.random() < 0.3
        running = trial.start((lambda: _remount(trial.folder, "ro")) if before else int)
        if not before and running.wait(trial.moment()) is None:
            trial.story["remounted"] = _remount(trial.folder, "ro")
        fault = trial.end(running)
        _remount(trial.folder, "rw")
        return fault or _half_written(trial)


def _clock(trial: Trial) -> str | None:
    """Set the clock, and the times of all files, years back or forth between two runs."""
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


def _two_writers(trial: Trial) -> str | None:
    """Give the command twice at nearly the same time, perhaps killing one of the two."""
    first = trial.start()
    first.wait(trial.moment() * trial.rng.choice((0, 0.3, 1)))
    second = trial.start(said="second.")
    if trial.rng.random() < 0.3:
        victim = trial.rng.choice((first, second))
        if victim.wait(trial.moment()) is None:
            victim.signal_all(signal.SIGKILL)
    return trial.end(first) or trial.end(second) or _half_written(trial)


def _permissions(trial: Trial) -> str | None:
    """Take permissions from a file or folder at some moment; the command is nobody's."""
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
    return fault or _half_written(trial)


def _worker_signals(trial: Trial) -> str | None:
    """Kill or stop a worker at some moment; the command must go on, or say why not."""
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
    return trial.end(running) or _half_written(trial)


def _few_resources(trial: Trial) -> str | None:
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

    return trial.end(trial.start(limit)) or _half_written(trial)


def _deaf_terminal(trial: Trial) -> str | None:
    """Close the other end of stdout and stderr, as `| head` does, or give them a full device."""
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
    return _half_written(trial) if status in allowed else f"status {status} with {kind}"


def _damaged_work(trial: Trial) -> str | None:
    """Kill the command, damage what it has left of unfinished work, and give it again."""
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
    if (fault := trial.end(trial.start())) or trial.story["ends"][-1][0] == 0:  # type: ignore[index]
        return fault
    if ".work" not in path.parts and ".part" not in path.name:
        path.unlink()  # an error may ask for that where the file is finished
    return None


def _half_written(trial: Trial) -> str | None:
    before, after = trial.known.before["fresh"], trial.known.after
    for name, digest in contents(trial.folder).items():
        if name in after and digest not in (after[name], before.get(name)):
            return f"{name} is under its final name and not whole"
    return None


def _bytes_of(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 + 4096 for path in folder.rglob("*"))


def _remount(folder: Path, how: str) -> str:
    ended = subprocess.run(
        ["mount", "-o", f"remount,{how}", str(folder)], capture_output=True, text=True, check=False
    )
    return ended.stderr.strip() or how


def _nobody_has_python() -> bool:
    """Tell whether the user `nobody` may read the modules of this Python."""
    ended = subprocess.run(
        [sys.executable, "-c", "import email.policy"],
        user=_NOBODY, group=_NOBODY, capture_output=True, check=False,
    )  # fmt: skip
    return ended.returncode == 0


class _Disk:
    """A small file system in memory in the place of a folder, with the folder's contents."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mounted = False

    def __enter__(self) -> bool:
        sound = self._folder.with_name("sound")
        shutil.rmtree(sound, ignore_errors=True)
        self._folder.rename(sound)
        self._folder.mkdir()
        size = _bytes_of(sound) + 16 * 2**20
        ended = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self._folder)],
            capture_output=True, check=False,
        )  # fmt: skip
        self._mounted = ended.returncode == 0
        shutil.copytree(sound, self._folder, dirs_exist_ok=True)
        return self._mounted

    def __exit__(self, *failure: object) -> None:
        if self._mounted:
            kept = self._folder.with_name("sound")
            shutil.rmtree(kept)
            shutil.copytree(self._folder, kept)
            subprocess.run(["umount", "-l", str(self._folder)], check=True)
            self._folder.rmdir()
            kept.rename(self._folder)


_FAULTS: dict[str, Callable[[Trial], str | None]] = {
    "disk full": _full_disk,
    "size of files limited": _small_files,
    "read-only disk": _read_only,
    "clock steps": _clock,
    "two writers": _two_writers,
    "permissions": _permissions,
    "signals to workers": _worker_signals,
    "few files, little memory": _few_resources,
    "no terminal": _deaf_terminal,
    "damaged unfinished work": _damaged_work,
}
