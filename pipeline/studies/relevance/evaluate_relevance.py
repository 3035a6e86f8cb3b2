"""Additions of `pipeline evaluate --relevance` to a table: relevance.json and its Markdown."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import CUTOFFS
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.studies.relevance.figures import relevance_figures
from pipeline.studies.relevance.relevance_file import (
    Grades,
    RelevanceError,
    read_relevance,
    rows_of,
)

RELEVANCE_FILE = "relevance.json"
COLUMNS = {
    "num_queries": "queries",
    "relevant_per_query": "relevant",
    **{f"r{k}": f"R@{k}" for k in CUTOFFS},
    "r_precision": "R-P",
    "map_at_r": "mAP@R",
    **{f"ndcg_{k}": f"nDCG@{k}" for k in CUTOFFS},
}
"""The figures of `relevance_figures`, with their display names."""

Tables = dict[str, dict[str, Any]]
"""By file name without suffix: figures, `direction` and `sha256` of the file."""


def read_all(files: Iterable[str | Path]) -> dict[Path, Grades]:
    """Read several files of judgments.

    Raises
    ------
    RelevanceError
        A file is missing or corrupt, or two have the same name.
    """
    paths = [Path(file) for file in files]
    names = [path.stem for path in paths]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise RelevanceError(
            f"several files of judgments are called {', '.join(sorted(repeated))}; rename one"
        )
    return {path: read_relevance(path) for path in paths}


def evaluate_relevance(
    e: Embeddings, judgments: Mapping[Path, Grades], monitor: Monitor = QUIET
) -> Tables:
    """Return the figures of each file of judgments on one gallery.

    Parameters
    ----------
    e : Embeddings. The evaluated images and captions.
    judgments : mapping of Path to judgments. See `read_all`.
    monitor : Monitor. Receives a log line on queries and items outside the gallery.

    Raises
    ------
    RelevanceError
        A file has no relevant pair in the gallery, or its direction is ambiguous.
    """
    tables: Tables = {}
    for path, grades in judgments.items():
        try:
            judged = rows_of(grades, e)
            figures = relevance_figures(e, judged)
        except RelevanceError as error:
            raise RelevanceError(f"{path}: {error}") from error
        if judged.unknown or (judged.items < 0).any():
            monitor.log(
                f"{path}: {judged.unknown} of {judged.unknown + len(judged.items)} judged pairs "
                f"are ignored, as their query is not among the {judged.sides[0]}; "
                f"{int((judged.items < 0).sum())} items are not among the {judged.sides[1]} and "
                "count as not found"
            )
        about = {"direction": judged.direction, "sha256": sha256_of_file(path)}
        tables[path.stem] = {**about, **figures}
    return tables


def relevance_markdown(tables: Mapping[str, Tables]) -> str:
    """Return the figures of one or several embedding files as a Markdown table."""
    heads = ("embeddings", "judgments", "direction", *COLUMNS.values())
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|" + "---:|" * len(COLUMNS)]
    for file, of_file in tables.items():
        for name, row in of_file.items():
            cells = [str(row[c]) if c == "num_queries" else f"{row[c]:.1f}" for c in COLUMNS]
            lines.append(f"| {' | '.join([file, name, row['direction'], *cells])} |")
    return "\n".join(lines) + "\n"
