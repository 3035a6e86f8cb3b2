"""The job of `pipeline report`: tables over all experiments, and a folder of static HTML.

Pages need no script and ask nobody for anything: styles stand in them, pictures lie beside them.
The templates escape every text that comes from data.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment

from pipeline import __version__
from pipeline.datasets.manifest import check_relative
from pipeline.files import require_folder, write_json, write_text
from pipeline.pages.rendering import environment
from pipeline.progress import QUIET, Monitor
from pipeline.report.figures import Figure
from pipeline.report.galleries import Thumbnails, galleries_of
from pipeline.report.rankings import COLUMNS
from pipeline.report.results import Folders, Result, collect_results, columns_of, flattened
from pipeline.report.retrievals import SEED, TOP
from pipeline.report.sections import breakdown_of, comparable, own_figures, section_of
from pipeline.retrieval.tables import (
    HEADINGS,
    PROVENANCE_FILE,
    RECALL_FILE,
    Row,
    TableError,
    read_provenance,
    read_recall,
    write_joint_table,
)

FILES_FILE = "report.json"
"""Lists the report's files, so that a later one into the same folder removes what it replaces."""

WORDS_SHOWN = 12

FEW = 3
"""Lists of more items than this are folded."""


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes
    ----------
    rows : experiment to its row of the joint tables, in their order.
    gaps : what the pages had to leave out, one sentence each; () without pages.
    """

    rows: Mapping[str, Row]
    gaps: tuple[str, ...] = ()


def write_report(
    folders: Folders,
    out: str | Path,
    *,
    html: str | Path | None = None,
    first: Sequence[str] = (),
    monitor: Monitor = QUIET,
) -> Report:
    """Join the recall tables of all experiments, and make pages of them if asked.

    Parameters
    ----------
    folders : where everything is read from; the tables alone need `evaluations` only.
    out : folder of `recall.json`, `recall.csv` and `recall.md`.
    html : folder of the pages; `index.html` is the first. None: no pages.
    first : names of experiments that come first, in this order; others follow by name. Names
        without a table are passed over.
    monitor : is told what was written, and how many experiments have been read.

    Raises
    ------
    TableError
        There is no table, or a table, a provenance or a history is damaged.
    EmbeddingsError, ProtocolError
        An embedding file does not give what its table says.
    ImageReadError
        The system could not read a picture that is there.
    OutputError
        A folder cannot be written to.
    """
    evaluations, tables = folders.evaluations, Path(out)
    for folder in (tables, *([Path(html)] if html is not None else [])):
        require_folder(folder)
    found = sorted(path.parent.name for path in evaluations.glob(f"*/{PROVENANCE_FILE}"))
    if not found:
        raise TableError(
            f"{evaluations} holds no EXPERIMENT/{PROVENANCE_FILE}; run `pipeline evaluate ... "
            f"--out {evaluations}/EXPERIMENT` first"
        )
    names = [name for name in first if name in found]
    names += [name for name in found if name not in first]
    rows: dict[str, Row] = {
        name: {
            **columns_of(read_provenance(evaluations / name / PROVENANCE_FILE)),
            **read_recall(evaluations / name / RECALL_FILE),
        }
        for name in names
    }
    paths = write_joint_table(tables, rows)
    monitor.log(f"{len(rows)} experiments in {', '.join(map(str, paths))}")
    if html is None:
        return Report(rows)
    gaps = write_pages(Path(html), names, folders, monitor)
    index = Path(html) / "index.html"
    monitor.log(f"{index}: {len(names)} experiments, {len(gaps)} things left out")
    return Report(rows, gaps)


def write_pages(
    folder: Path, names: Sequence[str], folders: Folders, monitor: Monitor = QUIET
) -> tuple[str, ...]:
    """Write the pages of some experiments into a folder; `index.html` is the first.

    The same files on the disk give the same bytes. Files of an earlier report in the folder that
    this one does not have are removed; others are left alone.

    Parameters
    ----------
    folder : made if need be.
    names : the experiments in the order of the tables; folders of `folders.evaluations`.

    Returns
    -------
    tuple of str
        What had to be left out, one sentence each.

    Raises
    ------
    See `write_report`.
    """
    with monitor.progress("report", "experiment") as on_progress:
        results = collect_results(names, folders, lambda n: on_progress(n, len(names), 0))
    breakdowns = {result.name: found for result in results if (found := breakdown_of(result))}
    sections = [section_of(k, of, breakdowns) for k, of in enumerate(comparable(results), 1)]
    thumbnails = Thumbnails(folder / "images")
    files: list[str] = []

    def write(name: str, text: str) -> None:
        write_text(folder / name, text)
        files.append(name)

    def draw(figures: Sequence[Figure]) -> None:
        for figure in figures:
            files.extend(f"figures/{name}" for name in figure.write(folder / "figures"))

    templates = _templates()
    for section in sections:
        draw(section.figures)
        for result in section.results:
            breakdown = breakdowns.get(result.name)
            figures = tuple(own_figures(result, breakdown, partial(_tiny, result, thumbnails)))
            draw(figures)
            page = templates.get_template("experiment.html").render(
                root="../",
                result=result,
                section=section,
                comparison=section.comparisons[result.name],
                figures=figures,
                breakdown=breakdown,
                galleries=galleries_of(result, thumbnails),
                metadata=list(flattened(result.metadata)),
            )
            write(f"experiments/{result.name}.html", page)
    gaps = tuple(f"{result.name}: {gap}" for result in results for gap in result.gaps)
    gaps += tuple(thumbnails.faults)
    manifests = {r.dataset.manifest.name: r.dataset.manifest for r in results if r.dataset}
    index = templates.get_template("index.html").render(
        root="",
        sections=sections,
        results=results,
        gaps=gaps,
        datasets=manifests.values(),
        lineage=_lineages(results),
    )
    write("index.html", index)
    _remove_others(folder, {*files, *(f"images/{name}" for name in thumbnails.names)})
    return gaps


def _templates() -> Environment:
    templates = environment("pipeline.report")
    templates.filters["url"] = lambda path: quote(path)
    templates.filters["one"] = lambda value: f"{value:.1f}"
    templates.filters["two"] = lambda value: f"{value:.2f}"
    templates.globals |= {
        "columns": COLUMNS,
        "headings": HEADINGS,
        "top": TOP,
        "seed": SEED,
        "words_shown": WORDS_SHOWN,
        "few": FEW,
        "made_by": f"caption-feature-pipeline {__version__}, Jinja {version('jinja2')}, "
        f"Pillow {version('pillow')}",
    }
    return templates


def _lineages(results: Sequence[Result]) -> dict[str, Any]:
    """Return what made all experiments alike (`common`), and for each the rest (`own`)."""
    first = results[0].lineage
    common = {
        name: text
        for name, text in first.items()
        if len(results) > 1 and all(result.lineage[name] == text for result in results)
    }
    own = {r.name: {n: t for n, t in r.lineage.items() if n not in common} for r in results}
    return {"common": common, "own": own}


def _tiny(result: Result, thumbnails: Thumbnails, image_id: str) -> bytes:
    return b"" if result.dataset is None else thumbnails.tiny(result.dataset, image_id)


def _remove_others(folder: Path, files: set[str]) -> None:
    """Remove what an earlier report listed as its own and this one lacks; list this one's."""
    listed = folder / FILES_FILE
    try:
        earlier = json.loads(listed.read_text(encoding="utf-8"))["files"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        earlier = []
    for name in earlier:
        if isinstance(name, str) and not check_relative(name) and name not in files:
            (folder / name).unlink(missing_ok=True)
    write_json(listed, {"files": sorted(files)})
