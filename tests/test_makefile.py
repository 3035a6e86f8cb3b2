"""What `make` says when the environment cannot be made or a check fails, and at the next call."""

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
    for name in ("Makefile", "setup.cfg", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, tmp_path)
    (tmp_path / "programs").mkdir()
    for name in ("cp", "mkdir", "touch"):
        (tmp_path / "programs" / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def _make(project: Path) -> subprocess.CompletedProcess[str]:
    """Make the environment with nothing but programs/ of the project on PATH."""
    return subprocess.run(
        [str(shutil.which("make")), ".venv/.ready", "PYTHON=python-of-test"],
        cwd=project,
        env={"PATH": str(project / "programs"), "LC_ALL": "C", "HOME": str(project)},
        capture_output=True,
        text=True,
    )


def _program(project: Path, name: str, text: str) -> None:
    file = project / "programs" / name
    file.write_text(text)
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("python", "message"),
    [
        (
            '[ "$1" = --version ] && echo Python 3.10.4 || exit 1',
            "Python 3.11 or newer is needed; python-of-test is Python 3.10.4. "
            "Name another with: make PYTHON=python3.12\n",
        ),
        ("", "python-of-test is not there. Name another with: make PYTHON="),
        (
            '[ "$1" = -c ] || { echo "No space left on device" >&2; exit 1; }',
            ".venv could not be made, see above: when the disk has room",
        ),
    ],
)
def test_a_python_that_cannot_make_the_environment(
    project: Path, python: str, message: str
) -> None:
    if python:
        _program(project, "python-of-test", f"#!/bin/sh\n{python}\n")
    ended = _make(project)
    assert ended.returncode == 2
    assert message in ended.stdout
    assert not (project / ".venv").exists()


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


@pytest.mark.parametrize("broken", ["none", "ruff check", "ruff format", "mypy", "pytest"])
def test_any_check_that_fails_fails_all(project: Path, broken: str) -> None:
    folder = project / ".venv/bin"
    folder.mkdir(parents=True)
    for name in (".ready", ".docs-ready", ".birdnet-ready"):
        (project / ".venv" / name).touch()
    for name in ("ruff", "mypy", "pytest"):
        text = f'#!/bin/sh\necho "{name} $*"\ncase "{name} $*" in "{broken}"*) exit 1 ;; esac\n'
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    ended = subprocess.run(
        ["make", "--no-print-directory", "test"], cwd=project, capture_output=True, text=True
    )
    assert (ended.returncode != 0) == (broken != "none")
    if "ruff" not in broken:
        assert ended.stdout.splitlines()[-1].startswith("mypy"), "its errors are printed last"
