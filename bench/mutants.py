"""Share of mutants of this package killed by its tests: `python -m bench.mutants [MODULE...]`.

mutmut changes one operator, constant or argument at a time in a copy of the project, and runs the
tests that reach the changed function. A mutant survives if no test fails. `TARGETS` lists modules
and their test files; a module with more than `--sample` mutants is sampled. uvx installs mutmut in
its own environment, with the packages of this one. Prints a table, and the diff of each survivor.
"""

import argparse
import ast
import difflib
import json
import os
import random
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

# Modules below pipeline/, and their tests below tests/. `retrieval/measures.py` cannot be one: its
# columns are made at import, before mutmut activates a mutant.
TARGETS: Mapping[str, Sequence[str]] = {
    "heads/losses/nodes.py": ("heads/losses",),
    "heads/losses/ranking.py": ("heads/losses",),
    "heads/losses/structure.py": ("heads/losses",),
    "language/scores/bleu.py": ("language/test_scores.py",),
    "language/scores/cider.py": ("language/test_scores.py",),
    "retrieval/ranking/ranks.py": ("retrieval/ranking/test_ranks.py",),
    "retrieval/ranking/recall.py": (
        "retrieval/ranking/test_recall.py",
        "retrieval/ranking/test_protocols.py",
    ),
    "retrieval/ranking/recall_of_arrays.py": ("retrieval/ranking/test_recall_of_arrays.py",),
    "store/shards/plan.py": (
        "store/builder/test_existing.py",
        "store/shards/test_feature_set.py",
    ),
    "store/builder/existing.py": (
        "store/builder/test_existing.py",
        "store/builder/test_update.py",
    ),
    "text/encoders/fisher_vector.py": (
        "text/encoders/test_fisher_vector.py",
        "text/test_fitted.py",
    ),
    "text/fisher/codebook.py": ("text/fisher/test_codebook.py",),
    "text/fisher/gradients.py": ("text/fisher/test_gradients.py",),
}
# mutmut keeps every mutant of a function, with its docstring, in the module: this test counts them.
_COUNTS_EXAMPLES = "tests/heads/losses/test_ranking.py::test_examples_of_docstrings_run"
_COPIED = ("bench", "docs", "dvc.yaml", "params.yaml", "stages")  # that tests read
KILLED = ("killed", "timeout")
_NONE = "no mutant has this name"


def main() -> None:
    """Mutate modules and print how many of their mutants are killed."""
    parser = argparse.ArgumentParser(prog="bench.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="[default: all of TARGETS]")
    parser.add_argument("--sample", type=int, default=sys.maxsize, help="mutants of a module")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these mutants")
    given = parser.parse_args()
    modules = given.modules or list(TARGETS)
    if unknown := {*modules} - {*TARGETS}:
        parser.error(f"no targets: {', '.join(sorted(unknown))}; known are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_project(copy, modules)
        mutmut(copy, "run", _NONE)  # generates all mutants, and finds the tests that reach each
        rng, chosen, totals = random.Random(given.seed), [], {}
        for module in modules:
            meta = json.loads((copy / "mutants/pipeline" / f"{module}.meta").read_text("utf-8"))
            names = sorted(meta["exit_code_by_key"])
            totals[module] = len(names)
            named = [name for name in names if name in (given.only or names)]
            chosen += rng.sample(named, min(given.sample, len(named)))
        mutmut(copy, "run", "--max-children", "1", *chosen)
        ended = endings(mutmut(copy, "results", "--all", "true"), chosen)
        print(table(modules, totals, ended))
        for name, ending in sorted(ended.items()):
            if ending not in KILLED:
                print(f"\n{name}: {ending}", *difference(copy / "mutants", name), sep="\n")


def copy_project(copy: Path, modules: Sequence[str]) -> None:
    """Copy the files tracked by git into a folder, and configure mutmut there."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, check=True, capture_output=True, text=True
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if (PROJECT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((PROJECT / name).read_bytes())
    tests = sorted({f"tests/{test}" for module in modules for test in TARGETS[module]})
    settings = {
        "source_paths": ["pipeline"],
        "only_mutate": [f"pipeline/{module}" for module in modules],
        "also_copy": list(_COPIED),
        "pytest_add_cli_args_test_selection": tests,
        "pytest_add_cli_args": [f"--deselect={_COUNTS_EXAMPLES}"],
        "use_git_change_detection": False,
        "timeout_constant": 30,  # a process of pytest takes seconds before its first test
    }
    with (copy / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write("\n[tool.mutmut]\n")
        stream.writelines(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


def mutmut(folder: Path, *arguments: str) -> str:
    """Run mutmut in a folder; return its output."""
    path = [str(Path(sys.executable).parent), os.environ["PATH"]]
    # Processes that a test starts find the mutated modules, too.
    modules = [str(folder / "mutants"), sysconfig.get_path("purelib")]
    environment = os.environ | {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join(modules),
    }
    ended = subprocess.run(
        ["uvx", "--quiet", "mutmut", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if ended.returncode and _NONE not in arguments:
        lines = re.split(r"[\r\n]+", ended.stdout + ended.stderr)
        sys.exit("\n".join(["mutmut failed:", *lines[-40:]]))
    return ended.stdout


def endings(results: str, chosen: Sequence[str]) -> dict[str, str]:
    """Return the outcome of the chosen mutants by name, from the output of `mutmut results`."""
    lines = (line.strip().rpartition(": ") for line in results.splitlines())
    wanted = {*chosen}
    return {name: ending for name, _, ending in lines if name in wanted}


def difference(mutants: Path, name: str) -> list[str]:
    """Return the lines changed by a mutant; mutmut also stores the unchanged function."""
    module, _, mutant = name.rpartition(".")
    tree = ast.parse((mutants / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    original = f"{mutant.rpartition('__mutmut_')[0]}__mutmut_orig"
    old, new = (ast.unparse(functions[key]).splitlines()[1:] for key in (original, mutant))
    return [*difflib.unified_diff(old, new, lineterm="", n=0)][3:]


def table(modules: Sequence[str], totals: Mapping[str, int], ended: Mapping[str, str]) -> str:
    """Return a Markdown table; a mutant that times out counts as killed."""
    lines = ["| module | mutants | tried | killed | share |", "|---|---:|---:|---:|---:|"]
    tried: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    prefixes = {m: f"pipeline.{m[:-3]}.".replace("/", ".") for m in modules}
    for name, ending in ended.items():
        module = next(m for m, prefix in prefixes.items() if name.startswith(prefix))
        for row in (module, "all"):
            tried[row] += 1
            killed[row] += ending in KILLED
    for row in (*modules, "all"):
        total = totals.get(row, sum(totals.values()))
        share = 100 * killed[row] / tried[row]
        lines.append(f"| `{row}` | {total} | {tried[row]} | {killed[row]} | {share:.0f} % |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
