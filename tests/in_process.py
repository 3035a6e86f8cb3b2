"""Commands called in the process of the tests, which leave its signal handlers as they were.

A command keeps each signal that asks to stop. Were its handlers left, a signal that a later test
sends itself would end every command after it in the same process.
"""

import signal
import sys

import pytest

from stages.cli import main


def status_of(*arguments: object) -> int:
    """Run `pipeline ARGUMENTS...` and return its exit status."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["pipeline", *map(str, arguments)])
        patched.setattr(sys, "unraisablehook", sys.unraisablehook)
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    code = ended.value.code
    return code if isinstance(code, int) else 0
