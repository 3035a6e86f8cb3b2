"""Commands in separate processes: warm ones, forked from this process, and cold ones.

Starting Python and importing torch takes longer than the small jobs of the campaign. A warm command
is therefore a fork of this process, which has imported everything and has no threads: it starts to
work within milliseconds, so that a signal at a random moment hits the work instead of the imports.
It exits like Python: threads are joined and exit handlers run. A cold command is a new Python
process, as users start it.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.replay.runner import exit_status

PROJECT = Path(__file__).resolve().parents[2]
HUNG = -1000
"""The status of a command that did not end within its time."""

_COLD = "from stages.cli import main; main()"

Prepare = Callable[[], object]


@dataclass
class Running:
    """A running command, the leader of its own session.

    Attributes
    ----------
    pid : process id of the command.
    said : file with its stdout and stderr.
    status : exit status, minus a signal number, or `HUNG`; None while it runs.
    """

    pid: int
    said: Path
    started: float
    status: int | None = None

    def wait(self, seconds: float) -> int | None:
        """Return the status, or None if the command still runs after `seconds`."""
        end = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= end:
                break
            else:
                time.sleep(0.004)
        return self.status

    def finish(self, seconds: float) -> int:
        """Return the status; kill a command that exceeds `seconds`."""
        if self.wait(seconds) is None:
            self.signal_all(signal.SIGKILL)
            self.wait(60)
            self.status = HUNG
        return HUNG if self.status is None else self.status

    def signal(self, number: int) -> None:
        """Signal only the process of the command."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def signal_all(self, number: int) -> None:
        """Signal every live process of the command."""
        for pid in [self.pid, *self.others()]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def others(self) -> list[int]:
        """Return the other processes of the session, without zombies."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and folder.name != str(self.pid):
                with suppress(OSError, IndexError):
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self.pid and fields[0] != "Z":
                        found.append(int(folder.name))
        return found

    def workers(self) -> list[int]:
        """Return the worker processes of the command, without helpers of Python."""
        found = []
        for pid in self.others():
            with suppress(OSError):
                if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def text(self) -> str:
        """Return the output of the command so far."""
        return self.said.read_text(encoding="utf-8", errors="replace")


def start(
    arguments: Sequence[str], folder: Path, said: Path, cold: bool = False, prepare: Prepare = int
) -> Running:
    """Start `pipeline ARGUMENTS...` in a folder.

    Parameters
    ----------
    arguments : arguments of `pipeline`.
    folder : working folder.
    said : file for stdout and stderr.
    cold : whether to start a new Python process.
    prepare : called in the new process before the command, to set limits, clocks and users.
    """
    if cold:
        with said.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-c", _COLD, *arguments],
                cwd=folder, env=os.environ | {"PYTHONPATH": str(PROJECT)},
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                start_new_session=True, preexec_fn=prepare,
            )  # fmt: skip
        process.returncode = 0  # waited for by `Running`
        return Running(process.pid, said, time.monotonic())
    sys.stdout.flush()
    sys.stderr.flush()
    # Until the fork has the handlers of a new process, so that no signal meets those of this one.
    handled = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return Running(pid, said, time.monotonic())
    status = 70
    try:
        os.setsid()
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _redirect(said)
        os.chdir(folder)
        sys.argv = ["pipeline", *arguments]
        prepare()
        status = exit_status()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _redirect(said: Path) -> None:
    with said.open("wb") as stream, open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
