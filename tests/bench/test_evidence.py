"""A failure of a campaign is printed with the last lines of its command."""

from pathlib import Path

import pytest

from bench.endurance.evidence import Evidence


def test_the_last_lines_of_a_command_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = Evidence(tmp_path, 0)
    said = "\n".join(f"line {number}" for number in range(100))
    evidence.fault("train cca", 6, {"fault": "a traceback"}, None, said)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("FAULT train cca, seed 0, number 6: a traceback; see ")
    assert [line.strip() for line in lines] == said.splitlines()[-40:]
    assert evidence.faults["train cca"] == 1
