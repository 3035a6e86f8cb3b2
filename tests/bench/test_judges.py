"""The list of judges: programs that are missing or too slow are printed, and the others run."""

import sys
from pathlib import Path

import pytest

from bench import judges, shard_readers


def test_missing_and_slow_programs_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shard_readers, "NODE", tmp_path / "none" / "node_modules")
    reader = ("reads", ("sh", "-c", "echo é0.png 0.125"))
    monkeypatch.setattr(shard_readers, "READERS", (("odd", ("no-such-program",)), reader))
    h5py = "import h5py; f = h5py.File(path); ids = f['ids'].asstr()[:].tolist();" + (
        "features = f['features'][:]; axes = [d[0].name[1:] for d in f['features'].dims]"
    )
    compared = {"h5py": h5py, "reversed": f"{h5py}; ids = ids[::-1]", "fails": "1 / 0"}
    programs = [
        (name, [sys.executable, "-c", shard_readers.READ + code + shard_readers.PRINT])
        for name, code in compared.items()
    ]
    monkeypatch.setattr(shard_readers, "programs", lambda: programs)
    shard_readers.read_a_shard(tmp_path)
    judges._judge("tool", ["env", "PYTHONPATH=x", "no-such-program"], ".*")
    assert shard_readers.ended("slow", ["sleep", "9"], tmp_path, 0) is None
    lines = capsys.readouterr().out.splitlines()
    assert lines.pop(0).startswith("the first row is é0.png ")
    assert lines.pop(3).startswith("reversed: [[")
    assert lines.pop(3) == "fails: failed: ZeroDivisionError: division by zero"
    assert lines == [
        "odd: skipped, no-such-program is not installed",
        "reads: é0.png 0.125",
        "h5py: equal",
        "tool: skipped, no-such-program is not installed",
        "slow: stopped after 0 s",
    ]
