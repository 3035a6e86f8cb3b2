"""Ctrl-C stops a command also when Python drops its exception."""

import errno
import io
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import click
import pytest

import stages.console
from pipeline.store.errors import PipelineError
from stages.console import DONE, log_done, progress_of, run


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_error_that_quotes_a_long_text_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def refuse() -> None:
        raise PipelineError(f"the id {'x' * 10**6!r} is too long; shorten it")

    monkeypatch.setattr("sys.argv", ["refuse"])
    monkeypatch.setattr("sys.unraisablehook", sys.__unraisablehook__)
    with pytest.raises(SystemExit):
        run(refuse)
    said = capsys.readouterr().err
    assert "the id 'xxx" in said
    assert said.endswith("is too long; shorten it\n")
    assert 4000 < len(said) < 5000


class Full(io.StringIO):
    """A terminal that has gone, or a log on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stream", [Full(), None], ids=["full", "closed"])
def test_work_goes_on_when_nobody_can_read_its_log(
    stream: Full | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []

    @click.command()
    def work() -> None:
        log_done("begins")
        with progress_of("work", "step") as progress:
            progress(0, 2, 0)
        steps.append("done")

    monkeypatch.setattr("sys.argv", ["work"])
    monkeypatch.setattr("sys.unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr("sys.stderr", stream)
    with pytest.raises(SystemExit) as ended:
        run(work)
    sys.stderr.close()
    assert (ended.value.code, steps) == (DONE, ["done"])


def test_bytes_are_shown_as_megabytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a transfer goes on with what was there before."""
    clock = iter([0.0, 1.0, 40.0])
    monkeypatch.setattr("stages.console.monotonic", lambda: next(clock))
    with progress_of("pull", "byte") as progress:
        progress(8_000_000, 50_000_000, 0)
        progress(28_000_000, 50_000_000, 0)
    assert capsys.readouterr().err == "pull: 28.0 of 50.0 MB, 0.5 MB/s, 44 s left\n"


class Unlucky:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interrupt_during_a_destructor_is_not_lost(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Its own, so that the request to stop ends with this test.
    monkeypatch.setattr("stages.console._INTERRUPTED", [])
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setattr("sys.unraisablehook", sys.__unraisablehook__)
    steps = []

    @click.command()
    def work() -> None:
        with progress_of("work", "step") as progress:
            progress(0, 3, 0)
            Unlucky()
            steps.append("the exception was dropped")
            progress(1, 3, 0)
            steps.append("this is too far")

    monkeypatch.setattr("sys.argv", ["work"])
    with pytest.raises(SystemExit) as ended:
        run(work)
    assert ended.value.code == 130
    assert steps == ["the exception was dropped"]
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("moment", ["handlers are installed", "an error is printed", "the end"])
def test_an_interrupt_at_any_moment_ends_with_a_line(
    moment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stages.console._INTERRUPTED", [])
    install, write = signal.signal, stages.console.write_line

    def install_and_interrupt(
        number: signal.Signals, handler: Callable[[int, FrameType | None], None]
    ) -> object:
        before = install(number, handler)
        if moment == "handlers are installed" and number == signal.SIGINT:
            signal.raise_signal(number)
        return before

    def write_and_interrupt(line: str) -> None:
        if moment == "an error is printed" or "interrupted" in line:
            signal.raise_signal(signal.SIGINT)
        write(line)

    @click.command()
    def work() -> None:
        if moment == "the end":
            raise KeyboardInterrupt
        raise PipelineError("the folder does not exist")

    monkeypatch.setattr("stages.console.signal.signal", install_and_interrupt)
    monkeypatch.setattr("stages.console.write_line", write_and_interrupt)
    monkeypatch.setattr("sys.argv", ["work"])
    with pytest.raises(SystemExit) as ended:
        run(work)
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip().startswith("pipeline: error: interrupted;")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MemoryError(), "(the system has no more)"),
        (RuntimeError("can't start new thread"), "(can't start new thread)"),
        (ImportError("lib.so: failed to map segment from shared object"), "shared object)"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 GB\nmore"), "9 GB)"),
    ],
)
def test_a_lack_of_memory_is_one_paragraph(
    capsys: pytest.CaptureFixture[str], error: Exception, why: str
) -> None:
    @click.command()
    def starved() -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["starved"])
        with pytest.raises(SystemExit) as ended:
            run(starved)
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "not enough memory" in said
    assert why in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        SystemError("returned a result with an exception set"),
        ValueError("'T{d:val:q:i1:q:i2:}' is not a valid PEP 3118 buffer format string"),
        PipelineError("the shard is damaged"),
    ],
)
def test_an_interrupt_that_became_another_error_is_one(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of h5py, of NumPy within an import of scikit-learn, and of a reader that catches all."""
    monkeypatch.setattr("stages.console._INTERRUPTED", [])
    monkeypatch.setattr("sys.unraisablehook", sys.__unraisablehook__)

    @click.command()
    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as interrupt:
            raise error from interrupt

    monkeypatch.setattr("sys.argv", ["work"])
    with pytest.raises(SystemExit) as ended:
        run(work)
    assert ended.value.code == 143
    assert capsys.readouterr().err.strip().startswith("pipeline: error: interrupted;")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_after_the_command_does_not_disturb_the_exit(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exit handler of a library that one enters may print a traceback."""
    monkeypatch.setattr("stages.console._INTERRUPTED", [])
    monkeypatch.setattr("sys.unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr("sys.argv", ["work"])
    with pytest.raises(SystemExit) as ended:
        run(click.Command("work", callback=lambda: None))
    assert ended.value.code == DONE
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        pytest.fail("the exit is interrupted")
