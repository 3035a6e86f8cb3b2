"""A skip that nobody allowed fails continuous integration, and is an ordinary one elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import PROJECT

_CONFTEST = "from tests.skips import pytest_configure\n"
_TESTS = """
import pytest

def test_runs(): pass

def test_of_data(): pytest.skip("needs ../shared/data")

@pytest.mark.xfail
def test_known(): assert False
"""
_OTHER = "import pytest\npytest.importorskip('no_such_package')\n"


@pytest.mark.parametrize(
    ("ci", "options", "status"),
    [("true", (), 1), ("true", ("-p", "xdist.plugin", "--numprocesses", "1"), 1), ("", (), 0)],
)
def test_a_skip_that_nobody_allowed_fails(
    tmp_path: Path, ci: str, options: tuple[str, ...], status: int
) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_some.py").write_text(_TESTS)
    (tmp_path / "test_other.py").write_text(_OTHER)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, "."],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
            "CI": ci,
        },
        capture_output=True,
        text=True,
    )
    assert ended.returncode == status, ended.stdout
    lines = [line for line in ended.stdout.splitlines() if "does not allow" in line]
    assert len(lines) == status
    assert all("test_other.py" in line and "no_such_package" in line for line in lines)
