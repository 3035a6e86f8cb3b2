"""dvc.yaml: each stage names the modules that its command runs, and writes where it should."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.experiments.layout import Layout
from pipeline.store.families import additions
from tests.project import PROJECT

DVC: dict[str, Any] = yaml.safe_load((PROJECT / "dvc.yaml").read_text())
PARAMS: dict[str, Any] = yaml.safe_load((PROJECT / "params.yaml").read_text())

# The version, errors, messages, progress, where files lie, where the work is done, and the reading
# of params.yaml change no result.
WITHOUT_EFFECT = {
    "pipeline/__init__.py",
    "pipeline/experiments/__init__.py",
    "pipeline/experiments/layout.py",
    "stages/additions.py",
    "stages/command.py",
    "stages/console.py",
    "stages/experiment.py",
    "stages/params.py",
    "stages/plan.py",
}

# Imported for options that no stage gives: `--images`, `--leaks`, `--experiment FILE.yaml`.
NOT_REACHED = {
    PROJECT / "stages/additions.py",  # imports names for types, and what `added_by_families` adds
    PROJECT / "stages/experiment_name.py",
    PROJECT / "pipeline/datasets/plain_images.py",
    PROJECT / "pipeline/studies/near_duplicates/leaks.py",
}

# Encoders, which no module imports by name.
IMPORTED_BY_KIND = {"text": sorted((PROJECT / "pipeline/text/encoders").glob("*.py"))}


def added_by_families(call: ast.Call) -> list[str]:
    """Return the modules that a call such as `additions_to("EXTRACT")` imports."""
    package = {"additions_to": "stages", "added_options": "stages"}
    package |= {"added": "pipeline", "all_added": "pipeline"}
    function = call.func.id if isinstance(call.func, ast.Name) else ""
    if function not in package or not call.args or not isinstance(call.args[0], ast.Constant):
        return []
    places = additions(str(call.args[0].value), package[function])
    return [place.partition(":")[0] for place in places.values()]


@cache
def imported(path: Path) -> set[Path]:
    """Return the files of the project that a file imports by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call):
            names = added_by_families(node)
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
        waiting |= imported(module) - seen - NOT_REACHED
    return {str(p.relative_to(PROJECT)) for p in seen} - WITHOUT_EFFECT


def module_of(command: str) -> Path:
    """Return the file of a command of the core or of a family."""
    named = additions("COMMANDS", "stages").get(command, f"stages.{command}:")
    return PROJECT.joinpath(*named.partition(":")[0].split(".")).with_suffix(".py")


def commands(description: dict[str, Any]) -> list[str]:
    """Return the commands of `pipeline` that a stage runs."""
    cmd = description["cmd"]
    return [line.split()[1] for line in ([cmd] if isinstance(cmd, str) else cmd)]


@pytest.mark.parametrize("stage", DVC["stages"])
def test_a_stage_depends_on_the_code_that_it_runs(stage: str) -> None:
    description = DVC["stages"][stage]
    description = description.get("do", description)
    code = [dep for dep in description["deps"] if dep.startswith(("pipeline", "stages"))]
    assert all((PROJECT / dep).exists() for dep in code)
    needed: set[str] = set()
    for command in commands(description):
        for module in [module_of(command), *IMPORTED_BY_KIND.get(command, ())]:
            needed |= closure(module)
    uncovered = {n for n in needed if not any(n == c or n.startswith(f"{c}/") for c in code)}
    assert uncovered == set(), sorted(uncovered)
    unneeded = [c for c in code if not any(n == c or n.startswith(f"{c}/") for n in needed)]
    assert unneeded == []


def test_no_experiment_is_named() -> None:
    text = (PROJECT / "dvc.yaml").read_text()
    words = set(re.findall(r"[\w+-]+", text))
    named = {*PARAMS["experiments"], *PARAMS["ensembles"], *PARAMS["caption_features"]}
    assert named & words == set()
    assert len(text.splitlines()) < 180


def test_everything_that_is_made_lies_under_the_dataset() -> None:
    """And each stage writes where the layout says."""
    layout = Layout.of("${dataset}")
    places = {
        "extract": [layout.features("${item}")],
        "vectors": [layout.vectors("${key}")],
        "text": [layout.text("${key}"), layout.encoder("${key}")],
        "train": [layout.head("${key}")],
        "evaluate": [*layout.embedding_folders, layout.evaluations],
        "report": [layout.report],
    }
    for stage, expected in places.items():
        description = DVC["stages"][stage].get("do", DVC["stages"][stage])
        made = [
            Path(out if isinstance(out, str) else next(iter(out)))
            for kind in ("outs", "metrics", "plots")
            for out in description.get(kind, [])
        ]
        stray = [m for m in made if not any(m == place or place in m.parents for place in expected)]
        assert stray == [], stage
        assert all(any(m == e or e in m.parents for m in made) for e in expected), stage


def test_a_search_writes_no_output_or_dependency_of_a_stage() -> None:
    """A changed one would rerun stages with the next `dvc repro`."""
    written = Layout.of("${dataset}").searched("any")
    tracked = {
        Path(path if isinstance(path, str) else next(iter(path)))
        for stage in DVC["stages"].values()
        for kind in ("deps", "outs", "metrics", "plots")
        for path in stage.get("do", stage).get(kind, [])
    }
    assert not tracked & {written, *written.parents}


def test_the_report_writes_where_it_does_not_look() -> None:
    report = DVC["stages"]["report"]
    outs = [out if isinstance(out, str) else next(iter(out)) for out in report["outs"]]
    assert not any(out.startswith(f"{dep}/") for out in outs for dep in report["deps"])
