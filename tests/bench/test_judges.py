"""The list of judges: programs that are missing or too slow are printed, and the others run."""

from pathlib import Path

import pytest

from bench import judges


def test_missing_and_slow_programs_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judges, "NODE", tmp_path / "none" / "node_modules")
    reader = ("reads", ("sh", "-c", "echo 0.png 0.125"))
    monkeypatch.setattr(judges, "READERS", (("odd", ("no-such-program",)), reader))
    judges._read_a_shard(tmp_path)
    judges._judge("tool", ["env", "PYTHONPATH=x", "no-such-program"], ".*")
    assert judges._ended("slow", ["sleep", "9"], tmp_path, 0) is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("the first row is 0.png ")
    assert lines[1:] == [
        "odd: skipped, no-such-program is not installed",
        "reads: 0.png 0.125",
        "tool: skipped, no-such-program is not installed",
        "slow: stopped after 0 s",
    ]
