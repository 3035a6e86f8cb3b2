"""docs/quickstart.ipynb, run from top to bottom in an empty folder, and the front door's names."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pipeline
from tests.project import PROJECT


def last_value(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return None
    del tree.body[-1]
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((PROJECT / "docs/quickstart.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    values = [last_value(cell, names) for cell in cells]
    assert len(values[0]) == 5
    shape, dtype = values[1]
    assert (shape, str(dtype)) == ((2, 1280), "float32")
    assert values[2] == ((2, 1280), True)
    assert values[3] == (1, 50)
    made, rsum = values[4]
    assert made == tuple(f"{job} qian2018-baseline" for job in ("train", "embed", "evaluate"))
    assert 0 < rsum <= 600
    assert set(values[5]) == {"image_to_text_r10", "text_to_image_r10"}
    assert values[6] == (3, 1280)


def test_public_names_load_and_are_documented() -> None:
    page = (PROJECT / "docs/python.md").read_text()
    for name in pipeline.__all__:
        assert getattr(pipeline, name) is not None
        assert name == "__version__" or f"`{name}`" in page or f"`{name}" in page, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pipeline.nothing
    assert dir(pipeline) == sorted(pipeline.__all__)


def test_importing_is_light() -> None:
    """Neither the front door nor the recipes bring in torch or numpy's friends."""
    code = (
        "import sys, pipeline; pipeline.RECIPES; "
        "heavy = {'torch', 'scipy', 'h5py', 'nltk', 'gensim', 'sklearn', 'fsspec', 'aiohttp'}; "
        "print(sorted(heavy & {*sys.modules}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
