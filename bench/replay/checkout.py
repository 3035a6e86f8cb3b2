"""The code of both sides, each in its own folder."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

_PACKAGES = ("pipeline", "stages")


class NoCommit(ValueError):
    """Git has no commit of this name, or the commit lacks the packages."""


def commit_of(name: str) -> str:
    """Return the full hash of a commit.

    Parameters
    ----------
    name : str. Hash, branch, tag or expression such as HEAD~3.

    Raises
    ------
    NoCommit
        Git does not know the name.
    """
    arguments = ["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True)
    if found.returncode:
        raise NoCommit(f"{name!r} is not a commit of {PROJECT}; name one that `git log` lists")
    return found.stdout.strip()


def check_out(commit: str, folder: Path) -> None:
    """Write the packages of a commit to a new folder.

    Raises
    ------
    NoCommit
        The commit lacks `pipeline/` or `stages/`.
    """
    arguments = ["archive", "--format=tar", commit, *_PACKAGES]
    archive = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True)
    if archive.returncode:
        raise NoCommit(f"git archive {commit}: {archive.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


def copy_tree(folder: Path) -> None:
    """Copy the packages of the working tree to a new folder, which later edits do not affect."""
    for name in _PACKAGES:
        shutil.copytree(
            PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
