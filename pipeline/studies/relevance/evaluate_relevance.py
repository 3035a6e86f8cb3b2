"""Additions of `pipeline evaluate --relevance` to a table: relevance.json and its Markdown."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import Relevance
from pipeline.retrieval.measures import CUTOFFS, Column, recall_at
from pipeline.store.hashing import sha256_of_file
from pipeline.store.one_or_many import values_of
from pipeline.store.progress import Monitor
from pipeline.store.wording import markdown_table
from pipeline.studies import StudyError
from pipeline.studies.relevance.figures import relevance_figures
from pipeline.studies.relevance.relevance_file import Grades, read_relevance, rows_of

COLUMNS = (
    Column("num_queries", "queries", decimals=0),
    Column("relevant_per_query", "relevant"),
    *(recall_at(k).column for k in CUTOFFS),
    Column("r_precision", "R-P"),
    Column("map_at_r", "mAP@R"),
    *(Column(f"ndcg_{k}", f"nDCG@{k}") for k in CUTOFFS),
)
"""The figures of `relevance_figures`."""

Tables = dict[str, dict[str, Any]]
"""By file name without suffix: figures, `direction` and `sha256` of the file."""


def judged_by(files: str | Path | Iterable[str | Path]) -> Callable[[Embeddings, Monitor], Tables]:
    """Return the argument `relevance` of `pipeline.evaluate` from files of judgments.

    Parameters
    ----------
    files : str, Path or iterable of them. Graded judgments, such as ECCV Caption's
        `eccv_image_to_caption.json`, or JSON lines with `query`, `item` and `grade`.

    Returns
    -------
    callable
        Returns for a gallery, by file name without suffix: mAP@R, R-Precision, nDCG@K and other
        figures in per cent, the `direction` and the `sha256` of the file.

    Raises
    ------
    StudyError
        A file is missing or corrupt, or two have the same name. The callable raises it if a file
        has no relevant pair in the gallery, or its direction is ambiguous.

    Examples
    --------
    >>> judge = pipeline.judged_by("eccv_image_to_caption.json")  # doctest: +SKIP
    >>> pipeline.evaluate("coco.h5", "data/judged", relevance=judge)  # doctest: +SKIP
    """
    paths = [Path(file) for file in values_of(files, (str, Path), "a file (path)")]
    names = [path.stem for path in paths]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise StudyError(
            f"several files of judgments are called {', '.join(sorted(repeated))}; rename one"
        )
    judgments = {path: read_relevance(path) for path in paths}
    return partial(_figures, judgments)


def _figures(judgments: Mapping[Path, Grades], gallery: Embeddings, monitor: Monitor) -> Tables:
    """Return the figures of each file of judgments; log judged pairs outside the gallery."""
    tables: Tables = {}
    for path, grades in judgments.items():
        try:
            judged = rows_of(grades, gallery)
            figures = relevance_figures(gallery, judged)
        except StudyError as error:
            raise StudyError(f"{path}: {error}") from error
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


def relevance_markdown(tables: Mapping[str, Relevance]) -> str:
    """Return the figures of one or several embedding files as a Markdown table."""
    heads = ("embeddings", "judgments", "direction", *(column.title for column in COLUMNS))
    rows = []
    for file, of_file in tables.items():
        for name, row in of_file.items():
            cells = [column.text(row[column.name]) for column in COLUMNS]
            rows.append([file, name, row["direction"], *cells])
    return markdown_table(heads, rows, texts=3)
