"""Hostile files: readers must return or raise a named error, with bounded time and memory.

Each file is read in a fork with limits on CPU time, time in which it is blocked, and memory beyond
that of the process at its start. Any other outcome is a failure: another exception, a signal, a
timeout, or too much memory.
"""

import json
import os
import random
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.endurance.blocked import BlockedTime
from bench.endurance.damage.formats import damage
from bench.endurance.evidence import Evidence
from bench.endurance.inputs import make_inputs, make_more
from bench.endurance.readers import READERS, Reader

SECONDS, BLOCKED_SECONDS = 20, 180.0
LIMIT_BYTES, BOUND_BYTES = 4 * 2**30, 600 * 2**20


def files(
    evidence: Evidence, project: Path, work: Path, count: int, seed: int, until: float
) -> None:
    """Pass `count` hostile files to the readers, or as many as the time allows."""
    inputs = inputs_of_readers(project, work)
    others = [path.read_bytes() for path in sorted(inputs.rglob("*")) if path.is_file()]
    shares = [reader.share for reader in READERS]
    seen: Counter[str] = Counter()
    number = 0
    while number < count and time.monotonic() < until:
        rng = random.Random(f"{seed}-{number}")
        reader = rng.choices(READERS, shares)[0]
        folder = work / "trial"
        shutil.rmtree(folder, ignore_errors=True)
        path, how = _damaged(reader, inputs / reader.name, folder, rng, rng.choice(others))
        kept = path.read_bytes()
        started = time.monotonic()
        ending, text = _read_apart(reader, folder, work)
        evidence.tried[reader.name] += 1
        evidence.endings[reader.name, ending] += 1
        if ending not in ("read", "refused"):
            what = f"{reader.name}: {ending}: {text[-160:]}"
            seen[what] += 1
            path.write_bytes(kept)
            story = {
                "fault": f"{how} of {path.relative_to(folder)}: {ending}: {text}",
                "seconds": time.monotonic() - started,
            }
            evidence.fault(reader.name, number, story, folder if seen[what] <= 3 else None)
        number += 1
        if number % 500 == 0:
            print(f"{number} files", flush=True)
    print(f"{number} files")


def inputs_of_readers(project: Path, work: Path, readers: Sequence[Reader] = READERS) -> Path:
    """Create a folder of valid files for each reader, which must read them; return the parent."""
    inputs = work / "inputs"
    shutil.copytree(project, work / "project")
    make_more(work / "project")
    make_inputs(inputs, work / "project")
    for reader in readers:
        ending, text = _read_apart(reader, inputs / reader.name, work)
        if ending != "read":
            raise RuntimeError(f"{reader.name} does not read what is sound: {ending}, {text}")
    return inputs


def files_of(reader: Reader, folder: Path) -> list[Path]:
    """Return the files of a reader that are damaged, relative to its folder."""
    found = (path for pattern in reader.files for path in folder.glob(pattern))
    return sorted({path.relative_to(folder) for path in found if path.is_file()})


def _damaged(
    reader: Reader, sound: Path, folder: Path, rng: random.Random, other: bytes
) -> tuple[Path, str]:
    """Copy the inputs of a reader and damage one file; return it with a description."""
    name = rng.choice(files_of(reader, sound))
    if reader.name == "pictures":  # one of them, as each is read alone
        folder.mkdir()
        shutil.copy(sound / name, folder / name)
    else:
        shutil.copytree(sound, folder)
    how = damage(rng, folder / name, other)
    if reader.seal is not None and rng.random() < 0.9:
        reader.seal(folder)
    return folder / name, how


def _read_apart(reader: Reader, folder: Path, work: Path) -> tuple[str, str]:
    """Read in a fork; return the outcome in a word, and the printed text."""
    said = work / "ended.json"
    said.unlink(missing_ok=True)
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
            limit_memory()
            said.write_text(json.dumps(ending_of(reader, folder)))
        finally:
            os._exit(0)
    blocked = BlockedTime(pid)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if blocked.seconds() > BLOCKED_SECONDS:
            with suppress(ProcessLookupError):  # it has not begun
                os.killpg(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "hang", f"blocked for {BLOCKED_SECONDS:.0f} s"
        time.sleep(0.001)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return "hang", f"more than {SECONDS} s of the processor"
    if code:
        return "crash", f"signal {-code}"
    if not said.is_file():
        return "crash", "it ended without a word"
    ending, text = json.loads(said.read_text())
    return ending, text


def limit_memory() -> None:
    """Limit the memory of this process, without core dumps or output."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize:"):
            size = int(line.split()[1]) * 1024 + LIMIT_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def ending_of(reader: Reader, folder: Path) -> tuple[str, str]:
    """Return the outcome of a reader: "read", "refused", or the name of an unexpected exception."""
    import traceback

    from pipeline.store.errors import PipelineError

    # The peak begins anew, at what is resident.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_memory()
    text = ""
    try:
        reader.read(folder)
        ending = "read"
    except PipelineError as error:
        ending, text = "refused", str(error)
        if "\n" in text.strip() or not text.strip() or len(text) > 5_000_000:
            ending, text = "wordy", f"an error of {len(text)} characters: {text[:300]!r}"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)
        ours = [
            frame
            for frame in place
            if "/pipeline/" in frame.filename or "/stages/" in frame.filename
        ]
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        ending, text = type(error).__name__, f"{str(error)[:300]} at {where}"
    grown = _peak_memory() - before
    if ending in ("read", "refused") and grown > BOUND_BYTES:
        ending, text = "memory", f"{grown / 2**20:.0f} MiB more"
    return ending, text


def _peak_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
