"""Forks end with the status that a process would have."""

import sys

import pytest

from tests.forks import exit_of


@pytest.mark.parametrize(("code", "status"), [(None, 0), (3, 3), ("a text", 1)])
def test_the_status_of_a_fork_is_that_of_its_exit(code: int | str | None, status: int) -> None:
    assert exit_of(sys.exit, code) == status


def test_an_exception_is_status_1(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_of(int, "x") == 1
    assert "ValueError" in capfd.readouterr().err
