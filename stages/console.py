"""Output and exit of every command: settings, progress, one-paragraph errors, exit status.

Logs go to stderr, results to stdout.
"""

import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import click

from pipeline.store.errors import PipelineError, WrongUsage, is_out_of_memory
from pipeline.store.progress import Monitor, Progress

DONE, FAILED, WRONG_USAGE, SOME_ROWS_FAILED = 0, 1, 2, 3
FOUND = 3
"""Exit status if `--fail` is set and something is found; 3 means a problem of the data."""
_BEGAN, _LOGGED = "stages.began", "stages.logged"
# As shells count a signal; an interrupt without one is Ctrl-C's.
_BY_SIGNAL = 128

# Set by DVC for the commands of its stages.
_OF_DVC = "DVC_STAGE"
_PR_SET_PDEATHSIG = 1

_SECONDS_BETWEEN_LINES = 30.0

_PARAMETER = re.compile(r"`(\w+)=([^`]*)`")

# An error quotes what it found, which may be a text of any length.
_LONGEST_ERROR = 4000

# Python drops an exception that is raised while it runs a destructor or a weak reference's
# callback, so the signals that asked to stop are kept here too.
_INTERRUPTED: list[int] = []
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class LocalPath(click.Path):
    """A path of this machine; a URL and an empty path are rejected."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path."""
        # Imported here: most commands need none of it to show their help.
        from pipeline.store.files import require_local

        if value == "":  # as of a shell variable that is not set; `Path` reads it as "."
            self.fail("the path is empty", param, ctx)
        try:
            require_local(value)
        except PipelineError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


class OutputPath(click.Path):
    """An output path; rejected, before any work, if nothing can be written there."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path."""
        # Imported here, as above.
        from pipeline.store.files import require_folder
        from pipeline.store.objects.urls import url_of

        if value == "":  # `Path` reads it as the current folder
            self.fail("an empty path cannot be an output", param, ctx)
        if url_of(value) is None:
            require_folder(Path(value).parent)
        return super().convert(value, param, ctx)


class LocalOutputPath(OutputPath, LocalPath):
    """An output path of this machine."""


OUTPUT = LocalOutputPath(path_type=Path)
OUTPUT_OR_URL = OutputPath(path_type=Path)


def as_options(text: str) -> str:
    """Return a message of the library with parameters written as options.

    Messages name parameters as `update=True`, `top=3` or `dataset=...` for any value. Those of the
    running command become --update, --top 3 and --dataset.
    """
    context = click.get_current_context(silent=True)
    params = context.command.params if context else ()
    options = {p.name: max(p.opts, key=len) for p in params if isinstance(p, click.Option)}

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in options:
            return match[0]
        return options[name] if value in ("True", "...") else f"{options[name]} {value}"

    return _PARAMETER.sub(option, text)


def elapsed() -> float:
    """Return the seconds since the running command began."""
    return monotonic() - float(click.get_current_context().meta[_BEGAN])


def begin(ctx: click.Context) -> None:
    """Start the clock of `elapsed`."""
    ctx.meta[_BEGAN] = monotonic()


def log_chosen(**values: object) -> None:
    """Log values chosen for options without one; None is skipped."""
    text = " ".join(f"{name}={value}" for name, value in values.items() if value is not None)
    write_line(printable(f"chosen: {text}"))


def log_done(message: str) -> None:
    """Write a line of counts, shapes, seconds or rates."""
    write_line(printable(message))


def log_once(message: str) -> None:
    """Write a line unless the running command has written it."""
    context = click.get_current_context(silent=True)
    logged = context.meta.setdefault(_LOGGED, set()) if context else set()
    if message not in logged:
        logged.add(message)
        log_done(message)


def write_line(text: str) -> None:
    """Write a line to stderr; a closed stderr is ignored, so that hours of work do not fail."""
    with suppress(OSError):
        click.echo(text, err=True)


def printable(text: str) -> str:
    """Return text from data with control characters escaped, safe for a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def progress_of(what: str, unit: str) -> Iterator[Callable[[int, int, int], None]]:
    """Yield a function (done, total, failed) that updates a progress bar, or logs at intervals.

    On a terminal it is a bar with rate and remaining time; elsewhere a plain line every 30 seconds,
    so that short runs are quiet. It raises KeyboardInterrupt if an interrupt was swallowed.
    """
    if sys.stderr.isatty():
        # Here: its import is a third of the time of --help.
        from tqdm import tqdm

        bar: tqdm | None = None

        def show(done: int, total: int, failed: int) -> None:
            nonlocal bar
            _stop_if_interrupted()
            with suppress(OSError):
                if bar is None:
                    symbol = "B" if unit == "byte" else unit
                    bar = tqdm(desc=what, unit=symbol, unit_scale=unit == "byte", total=total,
                               initial=done, dynamic_ncols=True)  # fmt: skip
                bar.set_postfix_str(f"failed {failed}" if failed else "", refresh=False)
                bar.update(done - bar.n)

        try:
            yield show
        finally:
            if bar is not None:
                with suppress(OSError):
                    bar.close()
        return

    started = last = monotonic()
    first: int | None = None

    def line(done: int, total: int, failed: int) -> None:
        nonlocal last, first
        _stop_if_interrupted()
        first = done if first is None else first
        now = monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES and done > first:
            last = now
            rate = (done - first) / (now - started)
            left = f"{(total - done) / rate:.0f} s left"
            counts = f"{done} of {total} {unit}s, {rate:.3g}/s, {failed} failed"
            if unit == "byte":
                counts = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB, {rate / 1e6:.3g} MB/s"
            write_line(f"{what}: {counts}, {left}")

    yield line


class _Console:
    """The terminal as the monitor of a job: lines on stderr, and a bar or lines of progress."""

    def log(self, line: str) -> None:
        """Write a line."""
        log_done(as_options(line))

    def progress(self, what: str, unit: str) -> AbstractContextManager[Progress]:
        """Yield a function that shows progress."""
        return progress_of(what, unit)


CONSOLE: Monitor = _Console()


def run(command: click.Command) -> None:
    """Run a command line and return its exit status; user errors have no traceback."""
    _INTERRUPTED.clear()
    _open_closed_streams()
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    if _OF_DVC in os.environ:
        _end_with_parent()
    sys.unraisablehook = _without_interrupts(sys.unraisablehook)
    try:
        _run(command)
    except (KeyboardInterrupt, click.Abort):
        _end_interrupted()


def _end_with_parent() -> None:
    """Have the system send SIGTERM when the parent ends: DVC leaves its stage running."""
    import ctypes

    with suppress(AttributeError, OSError):  # other systems than Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _run(command: click.Command) -> None:
    """Run a command line; expected errors print a paragraph and set the exit status."""
    _stop_if_interrupted()
    try:
        Path.cwd()
    except FileNotFoundError:
        _end_with("the current folder has been removed; change to one that exists, and try again")
    try:
        status = _returned(command)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except WrongUsage as error:
        _end_with(str(error), WRONG_USAGE)
    except PipelineError as error:
        _end_with(str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        _end_with(
            f"{error.strerror or error}{where}: the system refused this; "
            f"{'make room on the disk' if full else 'check the path and its permissions'}, "
            "then run the same command again"
        )
    except (MemoryError, RuntimeError, ImportError) as error:
        if not is_out_of_memory(error):
            raise
        why = str(error).partition("\n")[0] or "the system has no more"
        _end_with(
            f"there was not enough memory ({why}): stop other programs or use a larger machine, "
            "then run the same command again"
        )
    sys.exit(status if isinstance(status, int) else DONE)


def _returned(command: click.Command) -> Any:
    """Return what a command returns; an error after an interrupt is the interrupt.

    Libraries turn one into other errors: h5py into SystemError where HDF5 calls it back, NumPy into
    ValueError where it reads the format of a buffer.
    """
    try:
        return command.main(standalone_mode=False)
    except Exception as error:
        if _INTERRUPTED:
            raise KeyboardInterrupt from error
        raise


def _end_interrupted() -> None:
    """Exit with 130 after Ctrl-C and 143 after SIGTERM, unlike any failure."""
    number = _INTERRUPTED[0] if _INTERRUPTED else signal.SIGINT
    _end_with(
        "interrupted; finished rows are kept, no file is half-written, and the same command "
        "resumes",
        _BY_SIGNAL + number,
    )


def _end_with(text: str, status: int = FAILED) -> None:
    if (left_out := len(text) - _LONGEST_ERROR) > 0:
        half = _LONGEST_ERROR // 2
        text = f"{text[:half]} [{left_out} characters left out] {text[-half:]}"
    write_line(f"pipeline: error: {printable(text)}")
    sys.exit(status)


def _open_closed_streams() -> None:
    """Open /dev/null as stdin, stdout or stderr if the caller has closed it.

    Otherwise the next opened file gets its descriptor, and libraries write messages into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the command, but not its end: exit handlers would print a traceback."""
    _INTERRUPTED.append(number)
    while frame is not None:
        if frame.f_code is _run.__code__:
            raise KeyboardInterrupt
        frame = frame.f_back


def _without_interrupts(report: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a hook that reports dropped exceptions except interrupts, which set a flag."""

    def hook(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            report(dropped)

    return hook


def _stop_if_interrupted() -> None:
    if _INTERRUPTED:
        raise KeyboardInterrupt
