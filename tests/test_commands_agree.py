"""README, Makefile and continuous integration name the same two commands."""

import re

from tests.project import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (PROJECT / "Makefile").read_text(encoding="utf-8")
CI = (PROJECT / ".ci/run").read_text(encoding="utf-8")


def test_both_commands_stand_next_to_each_other_near_the_top_of_the_readme() -> None:
    lines = [line.partition("#")[0].strip() for line in README.splitlines()]
    at = lines.index("make repro")
    assert lines[at + 1] == "make test"
    assert at < 25


def test_each_command_of_the_readme_is_a_target_that_is_no_file() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    targets = set(re.findall(r"^make (\w+)", README, re.MULTILINE))
    assert {"repro", "test"} <= targets <= {*phony[1].split()}
    assert targets <= set(re.findall(r"^(\w+):", MAKEFILE, re.MULTILINE))


def test_continuous_integration_runs_that_command() -> None:
    lines = CI.splitlines()
    tests = [line for line in lines if line.startswith("make test") or "pytest" in line]
    assert tests[0].startswith("make test")
    # And what `make repro` runs.
    assert re.search(r"\bdvc repro\b", CI)
    assert "dvc repro" in MAKEFILE
