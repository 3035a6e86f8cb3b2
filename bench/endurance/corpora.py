"""Public corpora of malformed files, each read by every applicable reader.

Images, clips and sounds may have any bytes and names, so their readers get all files. Every other
reader gets the files with a suffix that it reads, each in place of one of its valid files. The
corpora are not part of this project; docs/lab/endurance.md lists where to find them.
"""

import json
import os
import select
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.endurance.blocked import EVERY, BlockedTime
from bench.endurance.evidence import Evidence
from bench.endurance.files import ending_of, inputs_of_readers, limit_memory
from bench.endurance.readers import READERS, Reader
from bench.endurance.warm_guard import WarmGuard
from pipeline.store import guard

SECONDS, BLOCKED_SECONDS = 60, 600.0
"""CPU time of reading a file, and the time without any that it may be blocked, at most."""

_ANY_FILE = ("pictures", "clips", "sounds")
_SUFFIXES = {".hdf5": ".h5", ".hdf": ".h5", ".ndjson": ".jsonl", ".yml": ".yaml", ".pt": ".pth"}
# Readings by one process; more failures of a kind than these are counted, not kept.
_AT_ONCE, _KEPT = 500, 3


@dataclass(frozen=True)
class _Reading:
    """A file, its reader, and its location in the reader's folder, of which `sound` is a copy."""

    path: Path
    reader: Reader
    place: Path
    sound: Path | None

    def ending(self, folder: Path) -> tuple[str, str]:
        """Read the file in a new folder; return the outcome in a word, and its text."""
        shutil.rmtree(folder, ignore_errors=True)
        if self.sound is None:
            folder.mkdir()
        else:
            shutil.copytree(self.sound, folder)
        shutil.copyfile(self.path, folder / self.place)
        if self.reader.seal is not None:
            self.reader.seal(folder)
        os.chdir(folder.parent)
        return ending_of(self.reader, folder)


def corpora(
    folders: Sequence[Path],
    evidence: Evidence,
    project: Path,
    work: Path,
    count: int,
    seed: int,
    until: float,
) -> None:
    """Pass `count` files of some folders to their readers, or as many as the time allows."""
    inputs = inputs_of_readers(project, work)
    readings = (
        reading for path in islice(_files(folders), count) for reading in _claims(path, inputs)
    )
    seen: Counter[str] = Counter()
    while some := list(islice(readings, _AT_ONCE)):
        for reading, ending, text in _read_apart(some, work):
            name = reading.reader.name
            evidence.tried[name] += 1
            evidence.endings[name, ending] += 1
            if ending in ("read", "refused"):
                continue
            what = f"{name}: {ending}: {text[-160:]}"
            seen[what] += 1
            if seen[what] <= _KEPT:
                story: dict[str, object] = {"fault": f"{reading.path}: {what}"}
                evidence.fault(name, evidence.tried.total(), story, reading.path)
            else:
                evidence.faults[name] += 1
        print(f"{evidence.tried.total()} readings, last of {some[-1].path}", flush=True)
        if time.monotonic() > until:
            break


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the ordinary files below some folders, in order, without those of git."""
    for top in folders:
        for folder, below, names in os.walk(top):
            below[:] = sorted(name for name in below if name != ".git")
            for name in sorted(names):
                if (path := Path(folder, name)).is_file() and not path.is_symlink():
                    yield path


def _claims(path: Path, inputs: Path) -> Iterator[_Reading]:
    suffix = path.suffix.lower()
    suffix = _SUFFIXES.get(suffix, suffix)
    for reader in READERS:
        if reader.name in _ANY_FILE:
            yield _Reading(path, reader, Path(f"file{path.suffix}"), None)
            continue
        sound = inputs / reader.name
        places = (place for pattern in reader.files for place in sorted(sound.glob(pattern)))
        place = next((p for p in places if suffix and p.suffix == suffix and p.is_file()), None)
        if place is not None:
            yield _Reading(path, reader, place.relative_to(sound), sound)


def _read_apart(readings: Sequence[_Reading], work: Path) -> Iterator[tuple[_Reading, str, str]]:
    """Read in forks, each of which continues until a reading ends it; yield the outcomes."""
    done = 0
    while done < len(readings):
        results, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(results)
                os.setsid()
                limit_memory()
                guard._try = WarmGuard().attempt  # a new interpreter for each file takes 0.25 s
                for reading in readings[done:]:
                    signal.setitimer(signal.ITIMER_PROF, SECONDS)
                    ended = json.dumps(reading.ending(work / "trial"))
                    os.write(write, ended.encode() + b"\n")
            finally:
                os._exit(0)
        os.close(write)
        before = done
        for ending, text in endings(results, pid, SECONDS):
            yield readings[done], ending, text
            done += 1
        os.close(results)
        if done == before:
            yield readings[done], "crash", "it ended without a word"
            done += 1


def endings(pipe: int, pid: int, seconds: float) -> Iterator[tuple[str, str]]:
    """Yield the outcomes that a process writes, then its own unless its status is 0.

    Parameters
    ----------
    pipe, pid : the process writes JSON lines of an outcome and its text to the pipe.
    seconds : its CPU time limit for each (ITIMER_PROF), for the text.
    """
    pending, blocked = b"", BlockedTime(pid)
    while blocked.seconds() < BLOCKED_SECONDS:
        if not select.select([pipe], [], [], EVERY)[0]:
            continue
        if not (block := os.read(pipe, 1 << 16)):
            break
        *lines, pending = (pending + block).split(b"\n")
        for line in lines:
            ending, text = json.loads(line)
            yield ending, text
        blocked = BlockedTime(pid)
    else:
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == -signal.SIGPROF:
        yield "hang", f"more than {seconds:g} s of the processor"
    elif code == -signal.SIGKILL:
        yield "hang", f"blocked for {BLOCKED_SECONDS:.0f} s"
    elif code:
        yield "crash", f"signal {-code}" if code < 0 else f"status {code}"
