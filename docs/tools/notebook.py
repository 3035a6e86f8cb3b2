"""Runs docs/quickstart.ipynb next to a copy of docs/photographs and stores its outputs in it.

    python docs/tools/notebook.py [OUT]

The cells are written by hand, in the notebook. Outputs keep what is the same each time: results and
images, without progress, addresses of objects and times.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

PROJECT = Path(__file__).resolve().parents[2]
NOTEBOOK = PROJECT / "docs" / "quickstart.ipynb"
PHOTOGRAPHS = PROJECT / "docs" / "photographs"


def executed(notebook: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of all its cells, run next to a copy of the photographs.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell raised; its traceback is in the message.
    """
    found: nbformat.NotebookNode = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PHOTOGRAPHS, Path(folder) / PHOTOGRAPHS.name)
        client = NotebookClient(
            found,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env={**os.environ, "PYTHONPATH": str(PROJECT)})
    for cell in found.cells:
        if cell.cell_type == "code":
            cell.outputs = [kept for output in cell.outputs if (kept := _repeatable(output))]
            cell.metadata = {}
    found.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return found


def _repeatable(output: Any) -> Any:
    """Return an output without what differs each time; None if nothing is left."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    data = output.get("data", {})
    if "image/jpeg" in data:  # smaller than PNG; the text of an image is its address in memory
        output.data = {"image/jpeg": data["image/jpeg"]}
    return output


def main(out: Path = NOTEBOOK) -> None:
    """Run the notebook and write it, back or to another file."""
    text = nbformat.writes(executed(NOTEBOOK), indent=1)  # type: ignore[no-untyped-call]
    out.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    sys.stdout.write(f"{out}: {len(text) / 1e3:.0f} kB\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
