"""Pages of a report: a folder of static HTML with queries, results and thumbnails.

Pages need no script and send no requests: styles are inline, and images are files in the folder.
"""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from pipeline.datasets.checks import check_relative
from pipeline.retrieval.measures import COLUMNS, REPORT_COLUMNS, report_legend
from pipeline.retrieval.tables import SEEN_LEGEND
from pipeline.store.files import parse_json, write_json, write_text
from pipeline.store.progress import QUIET, Monitor
from pipeline.studies.embedding_map.plane import Projection
from pipeline.web.pages.map_values import map_values
from pipeline.web.pages.rendering import MADE_BY, environment
from pipeline.web.report.figures import Figure
from pipeline.web.report.results import Dataset, Folders, Result, collect_results, flattened
from pipeline.web.report.retrievals import SEED, TOP, QueryResult
from pipeline.web.report.sections import (
    breakdown_of,
    comparable,
    numbered,
    own_figures,
    section_of,
    system_of,
)
from pipeline.web.report.thumbnails import Thumbnails, grid
from pipeline.web.report.verdict import Verdict

FILES_FILE = "report.json"
"""List of the report's files, from which a later report removes the outdated ones."""

WORDS_SHOWN = 12
FEW = 3  # maximum length of a list that is displayed unfolded


def write_pages(
    folder: Path,
    names: Sequence[str],
    folders: Folders,
    projection: Projection = "pca",
    monitor: Monitor = QUIET,
) -> tuple[str, ...]:
    """Write the pages of some experiments, starting at `index.html`; return what is left out."""
    with monitor.progress("report", "experiment") as on_progress:
        results = collect_results(
            names, folders, lambda n: on_progress(n, len(names), 0), projection
        )
    breakdowns = {
        result.name: breakdown for result in results if (breakdown := breakdown_of(result))
    }
    parts = comparable(results)
    numbers = numbered(parts)
    sections = [section_of(k, of, breakdowns, numbers) for k, of in enumerate(parts, 1)]
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
            number = numbers[system_of(result.name)]
            figures = tuple(own_figures(result, breakdown, number, thumbnails.tiny))
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
            if result.map is not None:
                write(f"maps/{result.name}.html", _map_page(result, thumbnails, templates))
    gaps = tuple(f"{result.name}: {gap}" for result in results for gap in result.gaps)
    gaps += tuple(thumbnails.reasons)
    manifests = {r.dataset.manifest.name: r.dataset.manifest for r in results if r.dataset}
    index = templates.get_template("index.html").render(
        root="",
        sections=sections,
        examples=[examples_of(section.verdict, thumbnails) for section in sections],
        results=results,
        gaps=gaps,
        datasets=manifests.values(),
        lineage=_lineages(results),
    )
    write("index.html", index)
    _remove_others(folder, {*files, *(f"images/{name}" for name in thumbnails.names)})
    return gaps


def _map_page(result: Result, thumbnails: Thumbnails, templates: Environment) -> str:
    assert result.map is not None
    assert result.dataset is not None
    entries = result.dataset.manifest.by_id
    name = thumbnails.sheet(result.dataset, result.map.ids)
    sheet = f"../images/{name}", *grid(len(result.map.ids))
    script = templates.get_template("map.js").render()
    return templates.get_template("map_page.html").render(
        root="../",
        result=result,
        map=map_values(result.map, lambda image: entries[image].first_caption, sheet),
        script=Markup(script),
        # The only script that the page's Content-Security-Policy allows.
        script_sha256=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def examples_of(verdict: Verdict, thumbnails: Thumbnails) -> dict[str, dict[str, Any]]:
    """Return the `found` and `missed` sentences of the best experiment, for the front page."""
    dataset = verdict.winner.dataset
    examples = {"found": verdict.found, "missed": verdict.missed}
    return {
        kind: _query(example, dataset, thumbnails)
        for kind, example in examples.items()
        if example is not None and dataset is not None
    }


def galleries_of(result: Result, thumbnails: Thumbnails) -> list[dict[str, Any]]:
    """Return queries of each kind with their results; [] without texts and images."""
    retrieval, dataset = result.retrieval, result.dataset
    if retrieval is None or dataset is None:
        return []
    parts: Sequence[tuple[str, bool, Sequence[QueryResult]]] = (
        ("sentences", False, retrieval.sentences),
        ("sentences", True, retrieval.sentence_failures),
        ("images", False, retrieval.images),
        ("images", True, retrieval.image_failures),
    )
    return [
        {
            "kind": kind,
            "failures": failures,
            "queries": [_query(of, dataset, thumbnails) for of in results],
        }
        for kind, failures, results in parts
    ]


def _templates() -> Environment:
    templates = environment("pipeline.web.report")
    templates.filters["url"] = lambda path: quote(path)
    templates.filters["one"] = lambda value: f"{value:.1f}".replace("-", "−")
    templates.filters["figure"] = lambda v, column: COLUMNS[column].text(v).replace("-", "−")
    templates.filters["two"] = lambda value: f"{value:.2f}"
    templates.globals |= {
        "columns": REPORT_COLUMNS,
        # rsum first, so that a phone shows it.
        "recall_columns": ("rsum", *(column for column in REPORT_COLUMNS if column != "rsum")),
        "headings": {name: column.title for name, column in COLUMNS.items()},
        "legend": report_legend(),
        "seen_legend": SEEN_LEGEND,
        "top": TOP,
        "seed": SEED,
        "words_shown": WORDS_SHOWN,
        "few": FEW,
        "made_by": f"{MADE_BY}, Pillow {version('pillow')}",
    }
    return templates


def _lineages(results: Sequence[Result]) -> dict[str, Any]:
    """Return the lineage that is `common` to all experiments, and the rest of each (`own`)."""
    first = results[0].lineage
    common = {
        name: text
        for name, text in first.items()
        if len(results) > 1 and all(result.lineage[name] == text for result in results)
    }
    rest = {r.name: {n: t for n, t in r.lineage.items() if n not in common} for r in results}
    return {"common": common, "own": rest}


def _remove_others(folder: Path, files: set[str]) -> None:
    """Remove outdated files of an earlier report, and write the list of current files."""
    listed = folder / FILES_FILE
    try:
        earlier = parse_json(listed.read_text(encoding="utf-8"))["files"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        earlier = []
    for name in earlier:
        if isinstance(name, str) and not check_relative(name) and name not in files:
            (folder / name).unlink(missing_ok=True)
    write_json(listed, {"files": sorted(files)})


def _query(result: QueryResult, dataset: Dataset, thumbnails: Thumbnails) -> dict[str, Any]:
    def item(name: str, rank: int, missed: bool = False) -> dict[str, Any]:
        return {
            "image": _image(name, dataset, thumbnails) if name in dataset.files else None,
            "text": dataset.texts.get(name, ""),
            "correct": name in result.correct,
            "rank": rank,
            "missed": missed,
        }

    items = [item(hit, rank) for rank, hit in enumerate(result.hits, 1)]
    if result.rank > len(result.hits):
        items.append(item(result.best_correct, result.rank, missed=True))
    return {"query": item(result.query, 0), "found": items}


def _image(image_id: str, dataset: Dataset, thumbnails: Thumbnails) -> dict[str, str]:
    copy = thumbnails.of(dataset, image_id)
    return {
        "file": copy.name,
        "reason": copy.reason,
        "sound": copy.sound,
        "alt": dataset.manifest.by_id[image_id].first_caption or image_id,
    }
