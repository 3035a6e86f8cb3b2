"""Which tests continuous integration may skip, and why; any other skip fails the run there.

A skip elsewhere is a line of `pytest -rs`. A package is no reason: `make test` installs all.
"""

import os
import re

import pytest

ALLOWED = {
    r"needs .*\.\./shared": "data of others, which no checkout has",
    r"golden bytes": "the processor or the libraries of the file; the rest was compared",
    r"npm package": "400 MB of weights, which docs/lab/recipes.md says how to fetch",
    r"Chromium": "a browser",
    r"needs a GPU": "a device",
    r"needs no GPU": "tests that fork a process which trains",
    r"needs a second disk": "a file system in memory, or any other",
    r"extended attributes": "a file system that has them",
    r"librosa": "a compiler as a package, for one comparison",
    r"mlcroissant": "eight packages, one of them built from source, for one test",
    r"clip_benchmark|mteb": "many packages, for one test each",
}
"""Pattern of a reason, and what is missing."""


def pytest_configure(config: pytest.Config) -> None:
    """Have skips fail in continuous integration; worker processes only report them."""
    if os.environ.get("CI") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipsFail())


def is_allowed(reason: str) -> bool:
    """Return whether a test may be skipped for this reason where all tests should run."""
    return any(re.search(pattern, reason) for pattern in ALLOWED)


class SkipsFail:
    """A plugin of pytest: the run fails if a test was skipped for a reason that is not allowed."""

    def __init__(self) -> None:
        """Begin without any."""
        self.skips: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that is skipped."""
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that is skipped."""
        self._note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run."""
        if self.skips:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List what was skipped."""
        for line in self.skips:
            terminalreporter.write_line(f"SKIPPED, which tests/skips.py does not allow: {line}")

    def _note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        # Of an expected failure, the outcome is "skipped" without a place.
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2]
            if not is_allowed(reason):
                self.skips.append(f"{report.nodeid}: {reason}")
