"""What `make` says when the environment cannot be made, and that the next `make` goes on."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.project import PROJECT

# An environment without anything in it, in place of one that takes minutes.
_PYTHON = """#!/bin/sh
case "$*" in
  -c*) exit 0 ;;
  *venv*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *"pip install"*) echo "ERROR: no such host" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with what the rule of the environment depends on."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, tmp_path)
    (tmp_path / "programs").mkdir()
    for name in ("cp", "mkdir", "touch"):
        (tmp_path / "programs" / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def _make(project: Path, python: str = "python-of-test") -> subprocess.CompletedProcess[str]:
    """Make the environment with nothing but programs/ of the project on PATH."""
    return subprocess.run(
        [str(shutil.which("make")), ".venv/.ready", f"PYTHON={python}"],
        cwd=project,
        env={"PATH": str(project / "programs"), "LC_ALL": "C", "HOME": str(project)},
        capture_output=True,
        text=True,
    )


def _program(project: Path, name: str, text: str) -> None:
    file = project / "programs" / name
    file.write_text(text)
    file.chmod(0o755)


def test_an_old_python_is_named(project: Path) -> None:
    old = '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.4 || exit 1\n'
    _program(project, "python-of-test", old)
    ended = _make(project)
    assert ended.returncode == 2
    assert ended.stdout == (
        "Python 3.11 or newer is needed; python-of-test is Python 3.10.4. "
        "Name another with: make PYTHON=python3.12\n"
    )
    assert not (project / ".venv").exists()


def test_a_python_that_is_not_there_is_named(project: Path) -> None:
    ended = _make(project, "python-of-nobody")
    assert "python-of-nobody is not there. Name another with: make PYTHON=" in ended.stdout


def test_no_room_for_the_environment(project: Path) -> None:
    _program(
        project,
        "python-of-test",
        '#!/bin/sh\n[ "$1" = -c ] || { echo "No space left on device" >&2; exit 1; }\n',
    )
    ended = _make(project)
    assert ended.returncode == 2
    assert "No space left" in ended.stderr
    assert ".venv could not be made, see above: when the disk has room" in ended.stdout


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_no_network_then_the_same_command_again(project: Path, tool: str) -> None:
    _program(project, "python-of-test", _PYTHON)
    if tool == "uv":
        _program(project, "uv", "#!/bin/sh\necho 'error: no such host' >&2; exit 1\n")
    ended = _make(project)
    assert ended.returncode == 2
    assert f"into .venv with {tool}" in ended.stdout
    assert "no such host" in ended.stderr
    assert "packages could not be installed, see above: when the network" in ended.stdout
    assert not (project / ".venv/.ready").exists()

    _program(project, "uv", "#!/bin/sh\nexit 0\n")
    ended = _make(project)
    assert ended.returncode == 0, ended.stderr
    assert (project / ".venv/.ready").exists()
    assert _make(project).stdout.strip() == "make: '.venv/.ready' is up to date."
