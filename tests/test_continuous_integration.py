"""Continuous integration fails if any of its parts does, also the one in the background."""

import subprocess
from pathlib import Path

import pytest

from tests.project import PROJECT

# Stands for each program: prints what the part expects, or fails if it is the broken one.
PROGRAM = """#!/bin/sh
command="$(basename "$0") $*"
case "$command" in
  "$BROKEN"*) exit 1 ;;
  "git clone"*) mkdir -p "$4" ;;
  "dvc status"*) echo "$STATUS" ;;
  "dvc repro"*) echo "$AGAIN" ;;
  "pipeline run"*) echo "$MADE" ;;
esac
"""
SOUND = {"BROKEN": "none", "STATUS": "up to date", "AGAIN": "", "MADE": "made: nothing"}
BROKEN = (
    "make .venv/.ready", "make test", "git clone", "dvc exp run", "dvc status",
    "dvc repro", "pipeline run", "pipeline report", "python -m bench.endurance",
)  # fmt: skip


def status(folder: Path, **broken: str) -> int:
    """Return the exit status of .ci/run with programs that do nothing."""
    (folder / ".ci").mkdir()
    (folder / ".ci/run").write_bytes((PROJECT / ".ci/run").read_bytes())
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("make", "python", "git", "dvc", "pipeline"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    path = f"{programs}:/usr/bin:/bin"
    environment = {"PATH": path, "TMPDIR": str(folder), **SOUND, **broken}
    run = subprocess.run(["bash", folder / ".ci/run"], env=environment, capture_output=True)
    return run.returncode


def test_sound_parts_pass(tmp_path: Path) -> None:
    assert status(tmp_path) == 0


@pytest.mark.parametrize("part", BROKEN)
def test_a_broken_part_fails(tmp_path: Path, part: str) -> None:
    assert status(tmp_path, BROKEN=part) != 0


@pytest.mark.parametrize(
    ("printed", "text"), [("STATUS", "changed"), ("AGAIN", "Running stage"), ("MADE", "made: all")]
)
def test_work_that_is_left_fails(tmp_path: Path, printed: str, text: str) -> None:
    assert status(tmp_path, **{printed: text}) != 0
