"""The report as a folder of static HTML: a page of all experiments, and one of each.

Pages need no script and ask nobody for anything: styles stand in them, pictures lie beside them.
The templates escape every text that comes from data.
"""

import json
from collections.abc import Callable, Sequence
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
from pipeline.report.analysis.comparison import COLUMNS
from pipeline.report.analysis.retrievals import SEED, TOP, Answer
from pipeline.report.data.provenance import flattened
from pipeline.report.data.results import Case, Dataset, Folders, collect
from pipeline.report.drawing.figures import Figure
from pipeline.report.drawing.thumbnails import Thumbnails
from pipeline.report.pages.sections import breakdown_of, group_of, grouped, own_figures
from pipeline.retrieval.tables import HEADINGS

FILES_FILE = "report.json"
"""Lists the report's files, so that a later one into the same folder removes what it replaces."""

WORDS_SHOWN = 12

FEW = 3
"""Of the items of a long part so many are shown at once; where there are more, they are folded."""


def write_html(
    folder: Path, names: Sequence[str], folders: Folders, said: Callable[[int], None]
) -> tuple[str, ...]:
    """Write the report of some experiments into a folder; `index.html` is its first page.

    The same files on the disk give the same bytes. Files of an earlier report in the folder that
    this one does not have are removed; others are left alone.

    Parameters
    ----------
    folder : made if need be.
    names : the experiments in the order of the tables; folders of `folders.reports`.
    said : is told how many experiments have been read.

    Returns
    -------
    tuple of str
        What had to be left out, one sentence each.

    Raises
    ------
    TableError, EmbeddingsError, ProtocolError
        See `pipeline.report.data.results.collect`.
    ImageReadError
        The system could not read a picture that is there.
    OutputError
        The folder cannot be written to.
    """
    require_folder(folder)
    cases = collect(names, folders, said)
    breakdowns = {case.name: found for case in cases if (found := breakdown_of(case))}
    groups = [group_of(k, found, breakdowns) for k, found in enumerate(grouped(cases), 1)]
    thumbnails = Thumbnails(folder / "images")
    files: list[str] = []

    def write(name: str, text: str) -> None:
        write_text(folder / name, text)
        files.append(name)

    def draw(figures: Sequence[Figure]) -> None:
        for figure in figures:
            files.extend(f"figures/{name}" for name in figure.write(folder / "figures"))

    templates = _templates()
    for group in groups:
        draw(group.figures)
        for case in group.cases:
            figures = tuple(
                own_figures(case, breakdowns.get(case.name), partial(_tiny, case, thumbnails))
            )
            draw(figures)
            page = templates.get_template("experiment.html").render(
                root="../",
                case=case,
                group=group,
                comparison=group.comparisons[case.name],
                figures=figures,
                breakdown=breakdowns.get(case.name),
                galleries=_galleries(case, thumbnails),
                facts=list(flattened(case.facts)),
            )
            write(f"experiments/{case.name}.html", page)
    gaps = tuple(f"{case.name}: {gap}" for case in cases for gap in case.gaps)
    gaps += tuple(thumbnails.faults)
    manifests = {c.dataset.manifest.name: c.dataset.manifest for c in cases if c.dataset}
    index = templates.get_template("index.html").render(
        root="", groups=groups, cases=cases, gaps=gaps, datasets=manifests.values(),
        lineage=_lineages(cases),
    )  # fmt: skip
    write("index.html", index)
    _forget_others(folder, {*files, *(f"images/{name}" for name in thumbnails.names)})
    return gaps


def _templates() -> Environment:
    templates = environment("pipeline.report.pages")
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


def _lineages(cases: Sequence[Case]) -> dict[str, Any]:
    """Return what made all experiments alike (`common`), and for each the rest (`own`)."""
    first = cases[0].lineage
    common = {
        name: text
        for name, text in first.items()
        if len(cases) > 1 and all(case.lineage[name] == text for case in cases)
    }
    own = {c.name: {n: t for n, t in c.lineage.items() if n not in common} for c in cases}
    return {"common": common, "own": own}


def _tiny(case: Case, thumbnails: Thumbnails, image_id: str) -> bytes:
    if case.dataset is None:
        return b""
    dataset = case.dataset
    return thumbnails.tiny(dataset.manifest.name, image_id, dataset.files[image_id])


def _galleries(case: Case, thumbnails: Thumbnails) -> list[dict[str, Any]]:
    """Return what the page shows of queries and answers, none without texts and pictures."""
    found, dataset = case.retrieval, case.dataset
    if found is None or dataset is None:
        return []

    def picture(image_id: str) -> dict[str, Any]:
        copy = thumbnails.of(dataset.manifest.name, image_id, dataset.files[image_id])
        alt = dataset.captions[image_id] or image_id
        return {"file": copy.name, "fault": copy.fault, "alt": alt}

    def answers(given: Sequence[Answer]) -> list[dict[str, Any]]:
        return [_answer(one, dataset, picture) for one in given]

    return [
        {"kind": "sentences", "failures": False, "answers": answers(found.sentences)},
        {"kind": "sentences", "failures": True, "answers": answers(found.sentence_failures)},
        {"kind": "images", "failures": False, "answers": answers(found.images)},
        {"kind": "images", "failures": True, "answers": answers(found.image_failures)},
    ]


def _answer(
    one: Answer, dataset: Dataset, picture: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    def item(found: str, rank: int, missed: bool = False) -> dict[str, Any]:
        return {
            "picture": picture(found) if found in dataset.files else None,
            "text": dataset.texts.get(found, ""),
            "correct": found in one.correct,
            "rank": rank,
            "missed": missed,
        }

    found = [item(hit, rank) for rank, hit in enumerate(one.found, 1)]
    if one.rank > len(one.found):
        found.append(item(one.best_correct, one.rank, missed=True))
    return {"query": item(one.query, 0), "found": found}


def _forget_others(folder: Path, files: set[str]) -> None:
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
