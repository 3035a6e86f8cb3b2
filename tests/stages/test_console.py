"""The end of every command: one paragraph, the exit status, and Ctrl-C at any moment."""

import errno
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import click
import pytest

import stages.console
from pipeline.store.errors import PipelineError
from stages.console import DONE, log_done, progress_of, run

Run = Callable[[Callable[[], object]], int]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a function as the command `work` and return its exit status."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install = signal.signal  # some tests replace it until after this fixture's end
    # Its own, so that a request to stop ends with this test.
    monkeypatch.setattr("stages.console._INTERRUPTED", [])
    monkeypatch.setattr("sys.unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr("sys.argv", ["work"])

    def status(work: Callable[[], object]) -> int:
        with pytest.raises(SystemExit) as end:
            run(click.Command("work", callback=work))
        assert isinstance(end.value.code, int)
        return end.value.code

    yield status
    for number, handler in before.items():
        install(number, handler)


def raising(error: BaseException) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


class Full(io.StringIO):
    """A terminal that has gone, or a log on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stream", [Full(), None], ids=["full", "closed"])
def test_work_goes_on_when_nobody_can_read_its_log(
    stream: Full | None, monkeypatch: pytest.MonkeyPatch, ended: Run
) -> None:
    steps = []

    def work() -> None:
        log_done("begins")
        with progress_of("work", "step") as progress:
            progress(0, 2, 0)
        steps.append("done")

    monkeypatch.setattr("sys.stderr", stream)
    status = ended(work)
    sys.stderr.close()
    assert (status, steps) == (DONE, ["done"])


def test_a_removed_working_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert ended(lambda: None) == 1
    assert "the current folder has been removed" in capsys.readouterr().err


def test_progress_off_a_terminal_is_a_line_every_30_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Short work is quiet; a resumed transfer counts its own bytes, as megabytes."""
    clock = iter([0.0, 1.0, 40.0])
    monkeypatch.setattr("stages.console.monotonic", lambda: next(clock))
    with progress_of("pull", "byte") as progress:
        progress(8_000_000, 50_000_000, 0)
        assert capsys.readouterr().err == ""
        progress(28_000_000, 50_000_000, 0)
    assert capsys.readouterr().err == "pull: 28.0 of 50.0 MB, 0.5 MB/s, 44 s left\n"


@pytest.mark.parametrize(
    ("error", "status", "why"),
    [
        (PipelineError(f"the id {'x' * 10**6!r} is too long; shorten it"), 1, "too long; shorten"),
        (OSError(errno.ENOSPC, "No space", "a.h5"), 1, "make room on the disk"),
        (PermissionError(errno.EACCES, "Denied", "a.h5"), 1, "Denied (a.h5)"),
        (MemoryError(), 1, "not enough memory (the system has no more)"),
        (RuntimeError("can't start new thread"), 1, "memory (can't start new thread)"),
        (RuntimeError("could not create a primitive"), 1, "memory (could not create a primitive)"),
        (ImportError("lib.so: failed to map segment from shared object"), 1, "shared object)"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 GB\nmore"), 1, "9 GB)"),
        (KeyboardInterrupt(), 130, "interrupted; finished rows are kept"),
    ],
)
def test_an_expected_error_is_one_paragraph(
    ended: Run, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, why: str
) -> None:
    assert ended(raising(error)) == status
    paragraph = capsys.readouterr().err.strip()
    assert paragraph.startswith("pipeline: error: ")
    assert why in paragraph
    assert "\n" not in paragraph
    assert len(paragraph) < 5000


def test_an_unexpected_error_keeps_its_traceback(ended: Run) -> None:
    with pytest.raises(RuntimeError, match="a defect"):
        run(click.Command("work", callback=raising(RuntimeError("a defect"))))


class Unlucky:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interrupt_during_a_destructor_is_not_lost(
    terminal: bool, ended: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    steps = []

    def work() -> None:
        with progress_of("work", "step") as progress:
            progress(0, 3, 0)
            Unlucky()
            steps.append("the exception was dropped")
            progress(1, 3, 0)
            steps.append("this is too far")

    assert ended(work) == 130
    assert steps == ["the exception was dropped"]
    text = capsys.readouterr().err
    assert "interrupted" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("moment", ["handlers are installed", "an error is printed", "the end"])
def test_an_interrupt_at_any_moment_ends_with_a_line(
    moment: str, ended: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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

    error = KeyboardInterrupt() if moment == "the end" else PipelineError("no such folder")
    monkeypatch.setattr("stages.console.signal.signal", install_and_interrupt)
    monkeypatch.setattr("stages.console.write_line", write_and_interrupt)
    assert ended(raising(error)) == 130
    assert capsys.readouterr().err.strip().startswith("pipeline: error: interrupted;")


@pytest.mark.parametrize(
    "error",
    [
        SystemError("returned a result with an exception set"),
        ValueError("'T{d:val:q:i1:q:i2:}' is not a valid PEP 3118 buffer format string"),
        PipelineError("the shard is damaged"),
    ],
)
def test_an_interrupt_that_became_another_error_is_one(
    error: Exception, ended: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of h5py, of NumPy within an import of scikit-learn, and of a reader that catches all."""

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as interrupt:
            raise error from interrupt

    assert ended(work) == 143
    assert capsys.readouterr().err.strip().startswith("pipeline: error: interrupted;")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_after_the_command_does_not_disturb_the_exit(
    number: signal.Signals, ended: Run
) -> None:
    """An exit handler of a library that one enters may print a traceback."""
    assert ended(lambda: None) == DONE
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        pytest.fail("the exit is interrupted")


def test_a_stage_ends_with_dvc(tmp_path: Path) -> None:
    """DVC itself leaves its stage running when it is killed."""
    dvc = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    scenes = ["prepare", "scenes", "--num-images", "60000", "--seed", "0", "--out", f"{tmp_path}/s"]
    with subprocess.Popen(
        [sys.executable, "-c", dvc, sys.executable, "-m", "pipeline", *scenes],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DVC_STAGE": "prepare"},
    ) as parent:
        assert parent.stderr is not None
        assert "num-images=60000" in parent.stderr.readline()
        parent.kill()
        assert "interrupted" in parent.stderr.read()  # until the stage closes it
