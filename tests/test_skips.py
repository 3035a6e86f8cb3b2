"""A skip that nobody allowed fails continuous integration, and is an ordinary one elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import PROJECT

_CONFTEST = "from tests.conftest import pytest_configure\n"
_TESTS = """
import pytest

def test_runs(): pass

def test_of_data(): pytest.skip("needs ../shared/data")

@pytest.mark.xfail
def test_known(): assert False
"""
_OTHER = "import pytest\npytest.importorskip('no_such_package')\n"


def _run(folder: Path, ci: bool, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "CI": "true" if ci else ""}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, "."],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("workers", [(), ("--numprocesses", "1")])
def test_a_skip_that_nobody_allowed_fails(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_some.py").write_text(_TESTS)
    assert _run(tmp_path, True, *workers).returncode == 0
    (tmp_path / "test_other.py").write_text(_OTHER)
    ended = _run(tmp_path, True, *workers)
    assert ended.returncode == 1, ended.stdout
    (line,) = [line for line in ended.stdout.splitlines() if "does not allow" in line]
    assert "test_other.py" in line
    assert "no_such_package" in line
    assert _run(tmp_path, False, *workers).returncode == 0
