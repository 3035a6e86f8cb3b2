"""Untrusted files are read in another process first: hangs and crashes become reasons."""

import errno
import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.store import guard
from pipeline.store.guard import crash_of, crashes_of, trust
from tests.read_as_told import read_as_told

pytestmark = pytest.mark.usefixtures("tried_apart")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A harmless file that another process wrote, and a limit that tests can wait for."""
    monkeypatch.setattr(guard, "SECONDS", 0.3)
    monkeypatch.setattr(guard, "BYTES", 64 << 20)
    path = tmp_path / "half a pair \udcff of surrogates"
    path.write_text("fine")
    return path


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("", None),
        ("print", None),
        ("refuse", None),
        ("hang", "did not finish reading it within 0 s"),
        ("crash", "crashed while reading it (signal 11)"),
        ("grow", "used more than 64 MiB of memory to read it"),
        ("killed", "was killed while reading it (signal 9), possibly for lack of memory"),
    ],
)
def test_a_crash_is_a_reason_and_the_next_file_is_read(
    file: Path, told: str, reason: str | None
) -> None:
    assert crash_of(read_as_told, file, told) == reason
    assert crash_of(read_as_told, file) is None


def test_a_larger_file_has_more_time(file: Path) -> None:
    found = crashes_of(read_as_told, [(file, 4_000_000)], "hang")
    assert found == {file: "did not finish reading it within 1 s"}


def test_a_file_that_was_written_here_is_not_tried_until_it_is_changed_or_copied(
    file: Path, tmp_path: Path
) -> None:
    trust(file)
    if not os.listxattr(file):
        pytest.skip("this file system has no extended attributes")
    assert crash_of(read_as_told, file, "crash") is None
    for copy in (shutil.copyfile, shutil.copy2):
        copied = Path(copy(file, tmp_path / "copy"))
        assert crash_of(read_as_told, copied, "crash") is not None
    file.write_text("crash")
    assert crash_of(read_as_told, file) == "crashed while reading it (signal 11)"


def test_a_file_system_without_extended_attributes_trusts_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(os, "setxattr", refuse)
    trust(file)
    assert crash_of(read_as_told, file, "crash") is not None


def test_of_several_files_those_that_crash_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, told in enumerate(("crash", "fine", "refuse", "killed", "crash", "fine")):
        (tmp_path / str(number)).write_text(told)
    monkeypatch.chdir(tmp_path)
    found = crashes_of(read_as_told, [(Path(str(n)), 0) for n in (5, 4, 3, 2, 1, 0, 9)])
    assert [str(path) for path in found] == ["4", "3", "0"]


def test_threads_have_processes_of_their_own(file: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        told = ["", "crash", "print", ""] * 2
        found = list(pool.map(lambda words: crash_of(read_as_told, file, words), told))
    assert [reason is not None for reason in found] == [words == "crash" for words in told]


def test_where_no_process_can_be_started_nothing_is_tried(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert crash_of(read_as_told, file, "crash") is None
    monkeypatch.setattr(sys, "executable", "/bin/true")
    assert crash_of(read_as_told, file, "crash") is None


def test_an_interrupt_ends_the_process(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SECONDS", 60)
    interrupted = threading.main_thread().ident, signal.SIGINT
    threading.Timer(0.5, signal.pthread_kill, interrupted).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        crash_of(read_as_told, file, "hang")
    assert time.monotonic() - started < 30
    assert crash_of(read_as_told, file) is None
