"""Every test file is collected, and no test stops the clock of the other threads.

pytest skips folders named like build products without a word.
"""

import ast
import re
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


def _replaced_clocks(source: str) -> list[str]:
    """Return the calls of `setattr` that replace an attribute of the module `time`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    called = [call for call in calls if ast.unparse(call.func).endswith("setattr") and call.args]
    names = {ast.unparse(call): ast.unparse(call.args[0]).strip("'") for call in called}
    return [
        call
        for call, name in names.items()
        if name.split(".")[-1] == "time" or ".time." in f".{name}"
    ]


def test_no_test_replaces_the_clock_of_all_threads() -> None:
    """An event loop that reads a replaced clock sleeps for as long as the machine runs."""
    texts = {str(path.relative_to(TESTS)): path.read_text() for path in TESTS.rglob("*.py")}
    patching = {
        path: text for path, text in texts.items() if re.search(r"setattr\([^)]*time", text)
    }
    replaced = {path: _replaced_clocks(text) for path, text in patching.items()}
    assert {path: calls for path, calls in replaced.items() if calls} == {}


@pytest.mark.parametrize(
    ("call", "clocks"),
    [
        ("monkeypatch.setattr(time, 'sleep', waits.append)", 1),
        ("monkeypatch.setattr('stages.console.time.monotonic', clock)", 1),
        ("monkeypatch.setattr('stages.console.monotonic', clock)", 0),
    ],
)
def test_a_replaced_clock_is_found(call: str, clocks: int) -> None:
    assert len(_replaced_clocks(call)) == clocks
