"""Figures of benches are compared under equal conditions only."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench import record
from bench.record import Conditions, Record, Row, compare, read_record, recorded
from tests.project import PROJECT

CONDITIONS = Conditions(
    "bench.steps", ["--count", "8"], {"processor": "A", "cores": "2"}, {"torch": "2.15.0"},
    {"torch": "1"},
)  # fmt: skip
ALTERED: dict[str, tuple[Conditions, str]] = {
    "machine": (replace(CONDITIONS, machine={"processor": "B", "cores": "2"}), "A and B"),
    "version": (replace(CONDITIONS, versions={"torch": "2.16.0"}), "torch: 2.15.0 and 2.16.0"),
    "package": (replace(CONDITIONS, versions={}), "torch: 2.15.0 and none"),
    "threads": (replace(CONDITIONS, threads={"torch": "2"}), "torch: 1 and 2"),
    "arguments": (replace(CONDITIONS, arguments=[]), "arguments: --count 8 and none"),
    "bench": (replace(CONDITIONS, bench="bench.text"), "bench.steps and bench.text"),
}


def run_of(line: str, source: str = "a", conditions: Conditions = CONDITIONS) -> Record:
    return Record(conditions, source * 64, [0.1, 0.2], [Row(line, [])])


@pytest.mark.parametrize("altered", ALTERED)
def test_other_conditions_are_named_and_not_compared(
    altered: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other, named = ALTERED[altered]
    with pytest.raises(SystemExit) as ended:
        compare(run_of("read 1.5"), run_of("read 3.0", conditions=other))
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (3, "")
    assert named in printed.err


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("resnet152-grid float32    2.50  8", "resnet152-grid float32   10.00  8",
         "resnet152-grid float32   x4.00  8"),
        ("57,000 captions/s, 1e-6", "114,000 captions/s, 2e-6", "  x2.00 captions/s, x2.00"),
        ("torch 2.15.0, recall@10 0.5", "torch 2.15.0, recall@10 0.4",
         "torch 2.15.0, recall@10 x0.80"),
        ("{8: 0, 16: 2.0}", "{8: 1, 16: 2.0}", "{8: xinf, 16: 2.0}"),
        ("SHA-256 0123abcd", "SHA-256 89abcdef", "SHA-256 89abcdef  (only in the second)"),
    ],
)  # fmt: skip
def test_figures_become_ratios(
    before: str, after: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(run_of(before), run_of(after, "b"))
    assert shown in capsys.readouterr().out.splitlines()


def test_equal_sources_are_stated(capsys: pytest.CaptureFixture[str]) -> None:
    compare(run_of("read 1.5"), run_of("read 3.0"))
    assert "the same sources" in capsys.readouterr().out
    compare(run_of("read 1.5"), run_of("read 3.0", "b"))
    assert "sources aaaaaaaaaaaa and bbbbbbbbbbbb" in capsys.readouterr().out


def test_a_bench_records_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []

    @recorded
    def main() -> None:
        runs.append(sys.argv[1:])
        sys.stdout.write(f"words {len(runs)}.0 of {sys.argv[1]}\n")

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["bench", *arguments])
        main()
        return capsys.readouterr().out

    file = tmp_path / "first.json"
    run("8", "--json", str(file))
    made = read_record(file)
    assert made.conditions.arguments == ["8"]
    assert made.conditions.bench == "bench.test_record"
    assert {"python", "torch", "numpy", "pillow", "h5py"} <= made.conditions.versions.keys()
    assert made.rows == [Row("words 1.0 of 8", [1.0, 8.0])]
    assert run("8", "--compare", str(file)).splitlines()[-1] == "words x2.00 of 8"
    # Another machine is refused before anything is measured.
    monkeypatch.setattr(record, "_processor", lambda: {"processor": "another"})
    with pytest.raises(SystemExit) as ended:
        run("8", "--compare", str(file))
    assert (ended.value.code, runs) == (3, [["8"], ["8"]])


@pytest.mark.parametrize(
    "damage",
    [lambda good: good[:-9], lambda good: b'{"rows": []}', lambda good: b"\xff", None],
)  # fmt: skip
def test_a_file_that_is_no_record_ends_it(
    damage: Callable[[bytes], bytes] | None, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    if damage is not None:
        good = json.dumps({"conditions": {}, "rows": []}).encode()
        file.write_bytes(damage(good))
    command = [sys.executable, "-m", "bench.record", "--compare", str(file), str(file)]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "not a record of a bench" in ended.stderr
    assert "Traceback" not in ended.stderr
