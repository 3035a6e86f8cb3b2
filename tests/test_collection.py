"""Every test file is collected: pytest skips folders named like build products without a word."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def _ignored(path: Path, root: Path, config: pytest.Config) -> bool:
    """Return whether pytest leaves out a test file, or a folder between it and `root`."""
    way = [path, *(folder for folder in path.parents if folder.is_relative_to(root))]
    hook = config.hook.pytest_ignore_collect
    return any(hook(collection_path=place, config=config) for place in way)


def test_every_test_file_is_collected(pytestconfig: pytest.Config) -> None:
    files = [path for path in TESTS.rglob("*.py") if "def test_" in path.read_text()]
    names = pytestconfig.getini("python_files")
    assert len(files) > 150
    left_out = [
        str(path.relative_to(TESTS))
        for path in files
        if _ignored(path, TESTS, pytestconfig)
        or not any(fnmatch(path.name, name) for name in names)
    ]
    assert left_out == []


@pytest.mark.parametrize(("folder", "ignored"), [("build", True), ("resume", False)])
def test_a_folder_that_pytest_skips_is_found(
    folder: str, ignored: bool, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    file = tmp_path / folder / "test_some.py"
    file.parent.mkdir()
    file.touch()
    assert _ignored(file, tmp_path / folder, pytestconfig) == ignored
