"""How long a process has waited for something other than the machine.

On a busy machine a process may need minutes of wall time for a second of CPU time, and would exceed
a limit of wall time without hanging. A blocked process sleeps; a starved one is ready to run, or
waits for a disk.
"""

import time
from contextlib import suppress
from pathlib import Path

EVERY = 1.0
"""Seconds between two looks at the processes."""

_BUSY = "RD"  # states of /proc: running or ready to run, waiting for a disk


class BlockedTime:
    """Seconds for which no thread of a session has run, or has waited for a CPU or a disk.

    Looks are counted instead of wall time: while this process is starved too, no time passes.
    """

    def __init__(self, session: int) -> None:
        """Start at 0 for the session of a leader, which may not have called `setsid` yet."""
        self._session, self._used = str(session), -1
        self._seconds, self._last = 0.0, time.monotonic()

    def seconds(self) -> float:
        """Return the seconds so far; the processes are looked at only if `EVERY` has passed."""
        now = time.monotonic()
        if now - self._last >= EVERY:
            used, busy = _use_of(self._session)
            if used == self._used and not busy:
                self._seconds += EVERY
            self._used, self._last = used, now
        return self._seconds


def _use_of(session: str) -> tuple[int, bool]:
    """Return the CPU time of a session in clock ticks, and whether a thread is busy."""
    used, busy = 0, False
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            fields = _fields(process / "stat")
            if session in (process.name, fields[3]):
                used += int(fields[11]) + int(fields[12])
                states = (_fields(thread / "stat")[0] for thread in (process / "task").iterdir())
                busy |= any(state in _BUSY for state in states)
    return used, busy


def _fields(stat: Path) -> list[str]:
    """Return the fields after the name, which may have spaces: state, parent, group, session..."""
    return stat.read_text().rpartition(")")[2].split()
