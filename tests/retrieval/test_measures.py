"""Columns of tables: a figure is one entry of `MEASURES`, from recall.json to claims."""

import ast
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.retrieval import measures
from pipeline.retrieval.measures import COLUMNS, DIRECTIONS, MEASURES, Measure
from tests.project import PROJECT
from tests.retrieval.factories import noisy, written

ENTRY = """
Measure(
    Column("mean_reciprocal_rank", "MRR", "MRR: mean of 1 / rank.", (0, 1), decimals=2),
    lambda ranks: 1.0 / (ranks + 1.0),
    legend="MRR: mean of 1 / rank",
    interval=True,
),
"""
USED_EVERYWHERE = """
import json, sys, types
from pathlib import Path
import pipeline.retrieval
name = "pipeline.retrieval.measures"
module = types.ModuleType(name)
sys.modules[name] = pipeline.retrieval.measures = module
exec(compile(Path("measures.py").read_text(), "measures.py", "exec"), module.__dict__)

from click.testing import CliRunner
from pipeline.studies.claims.claim import Claim, Figure
from pipeline.studies.claims.judge import judge
from pipeline.studies.claims.tables import markdown
from pipeline.web.report.pages import write_pages
from pipeline.web.report.published import COLUMNS
from pipeline.web.report.results import Folders
from stages.cli import cli

ran = CliRunner().invoke(cli, ["evaluate", "good.h5", "--out", "tables/good"])
assert ran.exit_code == 0, ran.output
print(ran.stdout)
claim = Claim("a", "c", "good.h5", "poor.h5", (Figure("text_to_image_mean_reciprocal_rank"),))
print(markdown(judge([claim])))
assert "video_to_text_mean_reciprocal_rank" in COLUMNS
folder = Path("tables")
write_pages(Path("report"), ["good"], Folders(folder, (Path(),), folder, folder, folder))
"""


def test_a_figure_is_one_entry(tmp_path: Path) -> None:
    """In JSON, CSV, the printed table, intervals, report, published rows and claims."""
    source = (PROJECT / "pipeline/retrieval/measures.py").read_text(encoding="utf-8")
    (entries,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MEASURES"
    )
    assert entries.end_lineno is not None
    lines = source.splitlines()
    lines.insert(entries.end_lineno - 1, ENTRY)
    (tmp_path / "measures.py").write_text("\n".join(lines), encoding="utf-8")
    good = noisy(60, 0.5, 1)
    written(tmp_path, "good", good)
    written(tmp_path, "poor", noisy(60, 3.0, 1))
    ran = subprocess.run(
        [sys.executable, "-c", USED_EVERYWHERE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    head = ran.stdout.splitlines()[0]
    assert ("i→t MRR" in head, "t→i MRR" in head) == (True, True)
    assert "from 1; MRR: mean of 1 / rank." in ran.stdout
    assert "| c | good.h5 (1) | poor.h5 (1) | t→i MRR |" in ran.stdout
    assert "| holds * |" in ran.stdout
    recall = (tmp_path / "tables/good/recall.json").read_text()
    names = [f"{d}_mean_reciprocal_rank{end}" for d in DIRECTIONS for end in ("", "_low", "_high")]
    assert all(f'"{name}": 0.' in recall for name in names)
    page = (tmp_path / "report/index.html").read_text()
    assert page.count("MRR</th>") == 2
    assert "MRR: mean of 1 / rank. i→t:" in page


RANKS = np.random.default_rng(0).integers(0, 40, 300)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.column.name)
def test_declarations_agree_with_the_figures(measure: Measure) -> None:
    """Limits hold, a better rank is better, and a mean is that of its summands."""
    least, most = measure.column.limits
    values = [measure.of(ranks) for ranks in (RANKS, RANKS * 0, RANKS + 10**6)]
    assert all(least <= value <= most for value in values)
    better = min if measure.column.lower_is_better else max
    assert better(values) == values[1] != values[2]
    assert measure.each is None or measure.of(RANKS) == pytest.approx(
        np.mean(measure.each(RANKS)), rel=1e-14
    )
    assert (measure.each is not None) or not measure.interval
    for column in measure.columns():
        assert COLUMNS[column.name] == column
        assert measures.measure_of(column.name) == (column.name[: len(DIRECTIONS[0])], measure)
    if measure.chance is not None:
        assert math.isclose(measure.chance({1: 5}, 1), values[1])
