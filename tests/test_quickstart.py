"""docs/quickstart.ipynb, run from top to bottom, its photographs, and the front door's names."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import pipeline
from tests.project import PROJECT

NOTEBOOK = PROJECT / "docs/quickstart.ipynb"
PHOTOGRAPHS = PROJECT / "docs/photographs"

_VARIES = re.compile(r"[0-9.]+|'[^']*'")


def outputs(notebook: Path) -> list[list[tuple[str, str]]]:
    """Return kind and text of the outputs of each cell, without digits and the bytes of images."""
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found = []
    for cell in cells:
        kept = []
        for output in cell.get("outputs", []):
            data = output.get("data") or {output["name"]: output["text"]}
            texts = {k: "" if k == "image/jpeg" else "".join(v) for k, v in data.items()}
            kept += [(kind, _VARIES.sub("#", text)) for kind, text in texts.items()]
        found.append(kept)
    return found


@pytest.mark.slow
def test_the_notebook_runs_to_the_outputs_that_it_holds(tmp_path: Path) -> None:
    """Figures, and so sentences that are found, may differ a little on another processor."""
    pytest.importorskip("nbclient", reason="nbclient is not installed: extra dev")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: extra dev")
    command: list[str | Path] = [
        sys.executable,
        PROJECT / "docs/tools/notebook.py",
        tmp_path / "again.ipynb",
    ]
    subprocess.run(command, check=True, capture_output=True)
    assert outputs(tmp_path / "again.ipynb") == outputs(NOTEBOOK)


def test_the_notebook_has_outputs_and_images() -> None:
    found = outputs(NOTEBOOK)
    kinds = [kind for cell in found for kind, _ in cell]
    assert kinds.count("image/jpeg") >= 8
    assert NOTEBOOK.stat().st_size < 400_000
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert " at 0x" not in text, "an address in memory, which differs each time"
    assert '"stderr"' not in text
    assert "Traceback" not in text


def test_every_photograph_is_free_and_names_its_source() -> None:
    with (PHOTOGRAPHS / "captions.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    files = [row["path"] for row in rows]
    assert sorted([*files, "captions.csv"]) == sorted(file.name for file in PHOTOGRAPHS.iterdir())
    assert {row["licence"] for row in rows} == {"CC0", "public domain"}
    assert all(row[column] for row in rows for column in row)
    assert sum(file.stat().st_size for file in PHOTOGRAPHS.iterdir()) < 600_000
    for name in files:
        with Image.open(PHOTOGRAPHS / name) as photograph:
            assert max(photograph.size) == 288


def test_public_names_load() -> None:
    for name in pipeline.__all__:
        assert getattr(pipeline, name) is not None
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
