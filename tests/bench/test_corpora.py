"""The campaign of other people's files: what ends a reading is found, and ends no other."""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.endurance import blocked, corpora
from bench.endurance.blocked import BlockedTime
from bench.endurance.corpora import _claims, _files, _read_apart, _Reading
from bench.endurance.readers import READERS, Reader
from pipeline.store.errors import PipelineError

# Python 3.12 warns of every fork in a process with threads, as torch's.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def _read(folder: Path) -> object:
    (path,) = folder.iterdir()
    match path.name:
        case "crash":
            faulthandler.disable()  # pytest's, which would tell of it
            os.kill(os.getpid(), signal.SIGSEGV)
        case "error":
            raise ValueError("no such thing")
        case "refused":
            raise PipelineError("not of this kind")
        case "hang":
            while True:
                pass
        case "blocked":
            signal.pause()
        case "slow":
            until = time.process_time() + 0.5
            while time.process_time() < until:
                pass
    return None


def test_each_reading_ends_as_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "SECONDS", 0.2)
    names = ["read", "crash", "error", "refused", "hang", "read"]
    for name in names:
        (tmp_path / name).touch()
    reader = Reader("any", ("*",), _read)
    readings = [_Reading(tmp_path / name, reader, Path(name), None) for name in names]
    found = [(reading, how, text) for reading, how, text in _read_apart(readings, tmp_path)]
    assert [reading for reading, _, _ in found] == readings
    endings = ["read", "crash", "ValueError", "refused", "hang", "read"]
    assert [how for _, how, _ in found] == endings
    assert found[1][2] == "signal 11"


def test_a_blocked_reading_is_a_hang_and_a_slow_one_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading that waits for a CPU is as slow as one that uses it, for a limit of wall time."""
    for module in (blocked, corpora):
        monkeypatch.setattr(module, "EVERY", 0.02)
    monkeypatch.setattr(corpora, "BLOCKED_SECONDS", 0.2)
    names = ["slow", "blocked", "read"]
    for name in names:
        (tmp_path / name).touch()
    reader = Reader("any", ("*",), _read)
    readings = [_Reading(tmp_path / name, reader, Path(name), None) for name in names]
    found = [(how, text) for _, how, text in _read_apart(readings, tmp_path)]
    assert [how for how, _ in found] == ["read", "hang", "read"]
    assert found[1][1] == "blocked for 0 s"


def _in_a_thread() -> None:
    threading.Thread(target=_busy, daemon=True).start()
    signal.pause()


def _busy() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("run", "is_blocked"), [(signal.pause, True), (_busy, False), (_in_a_thread, False)]
)
def test_a_process_that_could_run_is_not_blocked(
    run: Callable[[], None], is_blocked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "EVERY", 0.01)
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            run()
        finally:
            os._exit(1)
    time_blocked = BlockedTime(pid)
    for _ in range(15):
        time.sleep(0.02)
        seconds = time_blocked.seconds()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (seconds > 0.05) == is_blocked


def test_a_file_is_for_all_readers_that_may_meet_it(tmp_path: Path) -> None:
    (tmp_path / "inputs/coco").mkdir(parents=True)
    (tmp_path / "inputs/coco/captions.json").touch()
    for name in (".git/x.json", "b/x.JSON", "b/a"):
        (tmp_path / "corpus" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "corpus" / name).touch()
    (tmp_path / "corpus/link").symlink_to(tmp_path / "corpus/b/a")
    files = list(_files([tmp_path / "corpus"]))
    assert [path.name for path in files] == ["a", "x.JSON"]
    media = {"pictures", "clips", "sounds"}
    claims = [{r.reader.name: r for r in _claims(path, tmp_path / "inputs")} for path in files]
    assert [{*names} for names in claims] == [media, media | {"coco"}]
    assert claims[1]["coco"].place == Path("captions.json")
    assert {reader.name for reader in READERS} > media
