"""Disk faults: full, read-only, limited file sizes.

Disks are in-memory file systems mounted below the work folder; if mounting is not allowed, file
sizes are limited instead.
"""

import resource
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from bench.endurance.running import Running
from bench.endurance.trial import Trial, not_whole, perhaps_killed


def full_disk(trial: Trial) -> str | None:
    """Fill the disk, leaving fewer bytes than the command needs."""
    needed = _bytes_of(trial.known.starts["finished"]) - _bytes_of(trial.folder)
    with _Disk(trial.folder) as mounted:
        if not mounted:
            return small_files(trial)
        free = int(trial.rng.uniform(0, 1.2) * max(needed, 4096))
        trial.story["free"] = free
        ballast = trial.folder / "ballast"
        with ballast.open("wb", buffering=0) as stream, suppress(OSError):
            while True:
                stream.write(bytes(2**16))
        with ballast.open("rb+") as stream:
            stream.truncate(max(0, ballast.stat().st_size - free))
        running = trial.start()
        perhaps_killed(trial, running)
        fault = trial.end(running)
        ballast.unlink()
        return fault or not_whole(trial)


def small_files(trial: Trial) -> str | None:
    """Limit the size of files, as a quota does."""
    size = trial.rng.choice((0, 100, 1000, 5000, 20_000, 100_000))
    trial.story["limit"] = size

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    running = trial.start(limit)
    return _without_said(trial, running) or not_whole(trial)


def _without_said(trial: Trial, running: Running) -> str | None:
    """See `Trial.end`, for a command whose output may be truncated too."""
    fault = trial.end(running)
    return None if fault == "status 1 without a reason" else fault


def read_only(trial: Trial) -> str | None:
    """Make the disk read-only at a random moment, or before the command starts."""
    with _Disk(trial.folder) as mounted:
        if not mounted:
            return None
        before = trial.rng.random() < 0.3
        running = trial.start((lambda: _remount(trial.folder, "ro")) if before else int)
        if not before and running.wait(trial.moment()) is None:
            trial.story["remounted"] = _remount(trial.folder, "ro")
        fault = trial.end(running)
        _remount(trial.folder, "rw")
        return fault or not_whole(trial)


def _bytes_of(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 + 4096 for path in folder.rglob("*"))


def _remount(folder: Path, how: str) -> str:
    ended = subprocess.run(
        ["mount", "-o", f"remount,{how}", str(folder)], capture_output=True, text=True, check=False
    )
    return ended.stderr.strip() or how


class _Disk:
    """A small in-memory file system in place of a folder, with the contents of the folder."""

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
