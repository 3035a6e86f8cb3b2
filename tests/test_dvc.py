"""dvc.yaml: every stage names the modules that its command runs, and every experiment is joined."""

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[1]
DVC: dict[str, Any] = yaml.safe_load((PROJECT / "dvc.yaml").read_text())
PARAMS: dict[str, Any] = yaml.safe_load((PROJECT / "params.yaml").read_text())

# The version, errors, messages, progress and the reading of params.yaml change no result.
WITHOUT_EFFECT = {
    "pipeline/__init__.py",
    "pipeline/errors.py",
    "pipeline/shards/progress.py",
    "stages/console.py",
    "stages/params.py",
}


def imported(path: Path) -> set[Path]:
    """Return the files of the project that a file imports by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            place = PROJECT.joinpath(*name.split("."))
            for module in (place.with_suffix(".py"), place / "__init__.py"):
                if name.startswith(("pipeline.", "stages.")) and module.is_file():
                    found.add(module)
    return found


def closure(path: Path) -> set[str]:
    """Return the project's files that a command's module needs, directly or not."""
    seen: set[Path] = set()
    waiting = {path}
    while waiting:
        module = waiting.pop()
        seen.add(module)
        waiting |= imported(module) - seen
    return {str(p.relative_to(PROJECT)) for p in seen} - WITHOUT_EFFECT


@pytest.mark.parametrize("stage", DVC["stages"])
def test_a_stage_depends_on_the_code_that_it_runs(stage: str) -> None:
    description = DVC["stages"][stage]
    deps = description.get("do", description)["deps"]
    code = [dep for dep in deps if dep.startswith(("pipeline/", "stages/"))]
    assert all((PROJECT / dep).exists() for dep in code)
    command = description.get("do", description)["cmd"].split()[1]
    needed = closure(PROJECT / "stages" / f"{command}.py")
    uncovered = {n for n in needed if not any(n == c or n.startswith(f"{c}/") for c in code)}
    assert uncovered == set()
    unneeded = [c for c in code if not any(n == c or n.startswith(f"{c}/") for n in needed)]
    assert unneeded == []


def test_the_joint_table_depends_on_every_experiment() -> None:
    expected = {
        f"data/reports/{name}/{file}"
        for name in (*PARAMS["experiments"], *PARAMS["ensembles"])
        for file in ("recall.json", "provenance.json")
    }
    deps = {d for d in DVC["stages"]["report"]["deps"] if d.startswith("data/")}
    assert deps == expected
    assert set(DVC["metrics"]) == {path for path in expected if path.endswith("recall.json")}
