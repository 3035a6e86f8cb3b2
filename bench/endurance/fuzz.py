"""Coverage-guided fuzzing: inputs of a reader evolve towards code that no earlier input reached.

libFuzzer (the package `atheris`) calls the reader in one process, up to thousands of times per
second. Inputs that reach new branches of the Python code of `_MEASURED` are kept and mutated
further, by bytes or by damage that fits the format. Branches in C are not measured. A failure of a
new kind ends the process; the next one continues with the kept inputs.
"""

import gc
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FunctionType

from bench.endurance.corpora import endings
from bench.endurance.damage.formats import damaged_bytes
from bench.endurance.damage.raw import HOSTILE_FIELDS
from bench.endurance.evidence import Evidence
from bench.endurance.files import ending_of, files_of, inputs_of_readers, limit_memory
from bench.endurance.readers import Reader
from bench.endurance.warm_guard import WarmGuard
from pipeline.store import guard

SECONDS = 20.0
"""CPU time limit of one input, in seconds."""

_MEASURED = (
    "pipeline.", "starlette.", "python_multipart.", "numpy.lib.", "h5py.", "gensim.",
    "safetensors.", "zipfile", "tarfile", "json.", "csv", "ast", "xml.",
)  # fmt: skip
# Inserted anywhere; the last is a digit for Python, but not a number.
_WORDS = (*HOSTILE_FIELDS, "\u00b2".encode())
# More failures of a kind are counted, not kept.
_KEPT = 3


def fuzz(
    readers: Sequence[Reader],
    evidence: Evidence,
    project: Path,
    work: Path,
    count: int,
    seed: int,
    until: float,
) -> None:
    """Pass `count` inputs to each reader, or as many as its equal share of the time allows."""
    inputs = inputs_of_readers(project, work, readers)
    for number, reader in enumerate(readers):
        started, used = time.monotonic(), _cpu_seconds()
        end = started + (until - started) / (len(readers) - number)
        folder = work / f"fuzzed-{number}"
        fuzz_reader(reader, inputs / reader.name, folder, evidence, count, seed, end)
        log = (folder / "log").read_text(errors="replace")
        edges = [int(reached) for reached in re.findall(r" cov: (\d+)", log)]
        print(
            f"{reader.name}: {evidence.tried[reader.name]} inputs in "
            f"{time.monotonic() - started:.0f} s, {_cpu_seconds() - used:.0f} s of CPU; "
            f"{evidence.faults[reader.name]} failures; {max(edges, default=0)} edges reached, "
            f"{edges[0] if edges else 0} of them by valid files",
            flush=True,
        )


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fuzz_reader(
    reader: Reader, sound: Path, work: Path, evidence: Evidence, count: int, seed: int, until: float
) -> None:
    """Fuzz one reader in a fork, and in another one after each crash, hang or new failure.

    Parameters
    ----------
    sound : folder of the reader's valid files.
    work : new folder for the input, the kept inputs and the log of libFuzzer.
    """
    target = _Target(reader, sound, work, until)
    while evidence.tried[reader.name] < count and time.monotonic() < until:
        results, write = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            try:
                os.close(results)
                os.setsid()
                target.run(write, count - evidence.tried[reader.name], seed)
            except Exception:  # in this campaign, not in the reader
                traceback.print_exc()
            finally:
                os._exit(70)
        os.close(write)
        try:
            for ending, text in endings(results, pid, SECONDS):
                evidence.tried[reader.name] += 1
                evidence.endings[reader.name, ending] += 1
                if ending in ("read", "refused"):
                    continue
                target.seen[kind := _kind(ending, text)] += 1
                if target.seen[kind] <= _KEPT:
                    story: dict[str, object] = {"fault": f"{ending}: {text}"}
                    evidence.fault(reader.name, target.seen.total(), story, target.folder)
                else:
                    evidence.faults[reader.name] += 1
        finally:
            os.close(results)
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _kind(ending: str, text: str) -> str:
    """Return the outcome and the line of code of a failure, without its message."""
    return ending + "".join(re.findall(r" at \S+$", text))


class _Target:
    """A reader as a function of bytes: the number of a file, then its content."""

    def __init__(self, reader: Reader, sound: Path, work: Path, until: float) -> None:
        self.folder, self._corpus, self._log = work / "trial", work / "corpus", work / "log"
        self._reader, self._sound, self._until = reader, sound, until
        self.seen: Counter[str] = Counter()
        self._files = files_of(reader, sound)
        self._contents = [(sound / file).read_bytes() for file in self._files]
        self._corpus.mkdir(parents=True)
        for number, content in enumerate(self._contents):
            (self._corpus / str(number)).write_bytes(bytes([number]) + content)

    def run(self, results: int, count: int, seed: int) -> None:
        """Fuzz in this process until its end; write the outcomes to a pipe."""
        import atheris

        self._atheris, self._results, self._left = atheris, results, count
        limit_memory()
        with self._log.open("ab") as log:
            os.dup2(log.fileno(), 2)
        os.chdir(self.folder.parent)
        guard._try = WarmGuard().attempt  # a new interpreter for each file takes 0.25 s
        self._restore()
        # The modules of these functions; instrumenting all of the project takes 13 s of CPU.
        used: set[object] = set()
        sys.setprofile(lambda frame, *_: used.add(frame.f_globals.get("__name__")))
        ending_of(self._reader, self.folder)
        sys.setprofile(None)
        self._restore()
        for item in gc.get_objects():
            if (
                type(item) is FunctionType
                and item.__module__ in used
                and str(item.__module__).startswith(_MEASURED)
            ):
                atheris.instrument_func(item)
        longest = max(4 * max(map(len, self._contents)), 1 << 14)
        options = [
            f"-seed={seed + 1 + self.seen.total()}",
            f"-max_len={longest}",
            "-rss_limit_mb=0",
        ]
        options += [f"-handle_{name}=0" for name in ("segv", "bus", "abrt", "ill", "fpe")]
        arguments = ["fuzz", str(self._corpus), *options]
        atheris.Setup(arguments, self.read, custom_mutator=self.mutate)
        atheris.Fuzz()

    def read(self, data: bytes) -> None:
        """Read one input; end the process after the last one and after a new failure."""
        if not self._left or time.monotonic() > self._until:
            os._exit(0)
        if not data:
            return
        number = data[0] % len(self._files)
        path = self.folder / self._files[number]
        path.write_bytes(data[1:])
        if self._reader.seal is not None:
            self._reader.seal(self.folder)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        ending, text = ending_of(self._reader, self.folder)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._left -= 1
        text = "" if ending in ("read", "refused") else text[-160:]
        if text:
            path.write_bytes(data[1:])  # evidence, which the reader may have changed
        os.write(self._results, json.dumps([ending, text]).encode() + b"\n")
        if text and self.seen[_kind(ending, text)] < _KEPT:
            os._exit(0)
        if {*self.folder.iterdir()} == self._names and path.is_file():
            path.write_bytes(self._contents[number])
        else:
            self._restore()

    def mutate(self, data: bytes, max_size: int, seed: int) -> bytes:
        """Return a changed input: by libFuzzer, a hostile word, or damage that fits the format."""
        rng = random.Random(seed)
        kind = rng.random()
        if data and kind < 0.15:
            at = rng.randrange(len(data)) + 1
            changed = data[:at] + rng.choice(_WORDS) + data[at:]
            if len(changed) <= max_size:
                return changed
        elif data and kind < 0.5:
            number = data[0] % len(self._files)
            suffix = self._files[number].suffix
            # HDF5 itself is used to damage its files, and may crash on damaged ones.
            valid = self._contents[number] if suffix == ".h5" else data[1:]
            changed, _ = damaged_bytes(rng, suffix, valid, rng.choice(self._contents))
            if len(changed) < max_size:
                return data[:1] + changed
        return data[:1] + self._atheris.Mutate(data[1:], max_size - 1)

    def _restore(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._sound, self.folder)
        self._names = {*self.folder.iterdir()}
