"""dvc.yaml: every stage names the modules that its command runs, and every experiment is joined."""

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project import PROJECT

DVC: dict[str, Any] = yaml.safe_load((PROJECT / "dvc.yaml").read_text())
PARAMS: dict[str, Any] = yaml.safe_load((PROJECT / "params.yaml").read_text())

# The version, errors, messages, progress, where the work is done, where files lie and the reading
# of params.yaml change no result.
WITHOUT_EFFECT = {
    "pipeline/__init__.py",
    *(f"pipeline/cluster/{path.name}" for path in (PROJECT / "pipeline/cluster").glob("*.py")),
    "pipeline/errors.py",
    "pipeline/experiments/layout.py",
    "pipeline/progress.py",
    "pipeline/summary.py",
    "stages/cluster.py",
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


def test_the_report_depends_on_every_experiment() -> None:
    names = [*PARAMS["experiments"], *PARAMS["ensembles"]]
    tables = {f"data/reports/{name}/recall.json" for name in names}
    expected = {
        "data/${dataset}",
        "data/text/${dataset}",
        "data/vectors/${dataset}",
        *tables,
        *(f"data/reports/{name}/provenance.json" for name in names),
        *(f"data/embeddings/{name}.h5" for name in names),
        *(f"data/heads/{name}" for name in PARAMS["experiments"]),
    }
    deps = {d for d in DVC["stages"]["report"]["deps"] if d.startswith("data/")}
    assert deps == expected
    assert set(DVC["metrics"]) == tables


def test_every_head_that_is_trained_in_epochs_is_plotted() -> None:
    """Ridge and CCA are solved for: their histories have no loss."""
    trained = {
        f"data/heads/{name}/history.json"
        for name, plan in PARAMS["experiments"].items()
        if plan["head"] not in ("ridge", "cca")
    }
    plots = {name: plot for one in DVC["plots"] for name, plot in one.items()}
    assert set(plots.pop("recall")["x"]) == {"data/reports/recall.json"}
    columns = {
        "rsum": "rsum",
        "R@10": ["image_to_text_r10", "text_to_image_r10"],
        "loss": "loss",
    }
    for what, column in columns.items():
        drawn = [plot["y"] for name, plot in plots.items() if name.startswith(f"{what} of ")]
        assert sum(map(len, drawn)) == len(trained)
        assert {k: v for one in drawn for k, v in one.items()} == dict.fromkeys(trained, column)
