"""The fuzzing campaign: outcomes are counted, failures and crashes kept, valid files restored."""

import faulthandler
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.endurance import __main__ as endurance
from bench.endurance.evidence import Evidence
from bench.endurance.fuzz import fuzz_reader
from bench.endurance.readers import Reader
from pipeline.store.errors import PipelineError

# Python 3.12 warns of every fork in a process with threads, as torch's.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def _read(folder: Path) -> object:
    assert (folder / "a.json").read_bytes() == b"[1]" or (folder / "b.txt").read_bytes() == b"valid"
    (folder / "out").mkdir()  # only in a folder without that of the input before
    match (folder / "b.txt").read_bytes():
        case b"crash":
            faulthandler.disable()  # pytest's, which would print a trace
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"error":
            raise ValueError("unexpected")
        case b"refused":
            raise PipelineError("not of this kind")
    return json.loads((folder / "a.json").read_bytes())


class _LibFuzzer(SimpleNamespace):
    """As much of atheris as the campaign calls; each process reads the rest of the inputs."""

    def __init__(self, inputs: list[bytes], progress: Path) -> None:
        self.inputs, self.progress = inputs, progress

    def instrument_func(self, function: object) -> None:
        """Leave the function as it is."""

    def Setup(  # noqa: N802
        self,
        arguments: list[str],
        target: Callable[[bytes], None],
        custom_mutator: Callable[[bytes, int, int], bytes],
    ) -> None:
        self.target, self.mutator = target, custom_mutator

    def Mutate(self, data: bytes, max_size: int) -> bytes:  # noqa: N802
        return data[:max_size]

    def Fuzz(self) -> None:  # noqa: N802
        changed = [self.mutator(b"\0[1]", 50, seed) for seed in range(30)]
        assert all(data[:1] == b"\0" and len(data) <= 50 for data in changed)
        assert len({*changed}) > 5
        while True:
            number = len(self.progress.read_bytes())
            self.progress.write_bytes(bytes(number + 1))
            self.target(self.inputs[number] if number < len(self.inputs) else b"")


def test_outcomes_are_counted_and_failures_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [b"\0[1]", b"\1refused", b"\1error", b"\1crash", b"\2[3]", b"\1valid", b""]
    inputs += [b"\1error"] * 4 + [b"\0[1]"]
    (tmp_path / "progress").touch()
    monkeypatch.setitem(sys.modules, "atheris", _LibFuzzer(inputs, tmp_path / "progress"))
    (tmp_path / "sound").mkdir()
    (tmp_path / "sound/a.json").write_bytes(b"[1]")
    (tmp_path / "sound/b.txt").write_bytes(b"valid")
    evidence = Evidence(tmp_path / "kept", 0)
    reader = Reader("any", ("*",), _read)
    until = time.monotonic() + 60
    fuzz_reader(reader, tmp_path / "sound", tmp_path / "work", evidence, 11, 0, until)
    endings = {how: number for (_, how), number in evidence.endings.items()}
    assert endings == {"read": 4, "refused": 1, "ValueError": 5, "crash": 1}
    assert (evidence.tried["any"], evidence.faults["any"]) == (11, 6)
    kept = sorted((tmp_path / "kept").glob("*/project/b.txt"))
    assert [path.read_bytes() for path in kept] == [b"error", b"crash", b"error", b"error"]
    assert (kept[0].parent / "a.json").read_bytes() == b"[1]"
    stories = [path.read_text() for path in (tmp_path / "kept").glob("*/story.json")]
    assert sum(bool(re.search(r"ValueError: unexpected at", text)) for text in stories) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["csv", "--minutes", "1"], "fuzz needs names of readers: .*; folder csv;"),
        (["folder csv", "--minutes", "1"], "pip install 'atheris>=3.0'"),
    ],
)
def test_what_is_missing_is_named(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(endurance, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["endurance", "fuzz", *arguments])
    with pytest.raises(SystemExit):
        endurance.main()
    assert re.search(message, capsys.readouterr().err)
