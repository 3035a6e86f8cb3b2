"""The job of `pipeline evaluate --protocol entities`: metrics of phrase localization as tables."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.regions import RegionError
from pipeline.regions.localization.localized import Localized, read_localized
from pipeline.regions.localization.measures import (
    IOU,
    NMS,
    NO_HIT,
    Ranked,
    average_precisions,
    by_area,
    by_head,
    by_method,
    rank,
    rank_whole_image,
)
from pipeline.retrieval.measures import Column
from pipeline.retrieval.ranking import bootstrap
from pipeline.retrieval.ranking.bootstrap import mean_intervals
from pipeline.store.files import require_folder, write_json, write_text
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.wording import csv_text, markdown_table

PROTOCOL = "entities"
LOCALIZATION_FILE, PROVENANCE_FILE = "localization.json", "provenance.json"
CUTOFFS = (1, 5, 10)
_MAP = Column("phrase_to_region_map", "mAP")
COLUMNS = (
    *(Column(f"phrase_to_region_r{k}", f"R@{k}") for k in CUTOFFS),
    *(_MAP, Column("bound"), Column("pointing_game", "pointing")),
)
MEASURES = tuple(column.name for column in COLUMNS if column != _MAP)
"""Metrics that are means over queries, with an interval; mAP has none."""

Figures = dict[str, float]


@dataclass(frozen=True)
class LocalizationTable:
    """Metrics in percent over all queries and by phrase type, with simple baselines."""

    # By system, the head first, then "largest box", "whole image" and "order of the method":
    # `MEASURES` with `_low` and `_high`, and of the head and the largest box
    # `phrase_to_region_map`.
    rows: Mapping[str, Figures]
    # By phrase type, the head's `MEASURES` and `queries`; a phrase of several types counts in
    # each.
    types: Mapping[str, Figures]
    # Images, queries, distinct phrases, what has no proposals or no known word, most
    # proposals.
    counts: Mapping[str, int]


def evaluate_localized(
    file: str | Path, out: str | Path, *, nms: float = NMS, monitor: Monitor = QUIET
) -> LocalizationTable:
    """Evaluate a localization file and write `localization.json`, `.csv` and `provenance.json`.

    A proposal is correct if its intersection over union with a true box is at least 0.5. Intervals
    are 95 % percentile bootstraps over images with their queries.

    Parameters
    ----------
    file : str or Path. Localization file of `pipeline localize`.
    out : str or Path. Output folder.
    nms : float. Overlap above which proposals are suppressed before average precision, 0-1.
    monitor : Monitor. Receives lines on images without proposals and phrases without a known word,
        and one with counts and seconds.

    Returns
    -------
    LocalizationTable
        R@1, R@5, R@10, bound (the share of queries with a correct proposal), pointing game and mAP
        in percent, of the head, of the baselines "largest box", "whole image" and "order of the
        method", and of the head by phrase type.

    Raises
    ------
    RegionError
        The file is missing or damaged, or has no query.
    OutputError
        The folder is not writable.

    Examples
    --------
    >>> table = pipeline.evaluate_localized(
    ...     "data/localizations/mine/wang2016-region-phrase.h5", "tables"
    ... )  # doctest: +SKIP
    """
    file, folder = Path(file), Path(out)
    require_folder(folder)
    started = time.monotonic()
    localized = read_localized(file)
    if not localized.query_ids:
        raise RegionError(f"{file} has no query: no phrase of its images has a box")
    name = str(localized.provenance.get("experiment", file.stem))
    table = tabulate(localized, name, nms)
    counts = table.counts
    if counts["images_without_proposals"]:
        monitor.log(
            f"{counts['images_without_proposals']} images have no proposals; their "
            f"{counts['queries_without_proposals']} queries count as not found"
        )
    unknown = [t for t, k in zip(localized.phrase_texts, localized.known, strict=True) if not k]
    if unknown:
        monitor.log(f"{len(unknown)} phrases have no known word, first {', '.join(unknown[:5])}")
    values = {"rows": table.rows, "types": table.types, "counts": counts}
    write_json(folder / LOCALIZATION_FILE, values)
    columns = list(next(iter(table.rows.values())))
    lines = [[name, *(row.get(c, "") for c in columns)] for name, row in table.rows.items()]
    write_text(folder / "localization.csv", csv_text([["system", *columns], *lines]))
    write_json(
        folder / PROVENANCE_FILE,
        {
            "localization_sha256": sha256_of_file(file),
            "similarity": localized.similarity,
            "provenance": localized.provenance,
            "protocol": {"name": PROTOCOL, "iou": IOU, "nms": nms},
            "intervals": {
                "method": "percentile bootstrap over images with their queries",
                "resamples": bootstrap.RESAMPLES,
                "seed": bootstrap.SEED,
                "level": bootstrap.LEVEL,
            },
        },
    )
    monitor.log(
        f"{folder}: {counts['queries']} queries of {counts['images']} images, "
        f"{counts['phrases']} distinct phrases, in {time.monotonic() - started:.1f} s"
    )
    return table


def tabulate(localized: Localized, name: str, nms: float = NMS) -> LocalizationTable:
    """Return the metrics of a head, called `name`, and of the baselines."""
    scoring, largest = by_head(localized), by_area(localized)
    ranked = rank(localized, scoring)
    rows = {
        name: figures(localized, ranked) | _map(average_precisions(localized, scoring, nms)),
        "largest box": figures(localized, rank(localized, largest))
        | _map(average_precisions(localized, largest, nms)),
        "whole image": figures(localized, rank_whole_image(localized)),
        "order of the method": figures(localized, rank(localized, by_method(localized))),
    }
    types: dict[str, Figures] = {}
    for kind in sorted({t for types in localized.query_types for t in types.split("/") if t}):
        of_kind = np.array([kind in types.split("/") for types in localized.query_types])
        of_type = figures(localized, ranked, of_kind, with_intervals=False)
        types[kind] = {"queries": float(of_kind.sum())} | of_type
    proposals = np.diff(localized.first_region)
    return LocalizationTable(
        rows,
        types,
        {
            "images": len(localized.image_ids),
            "queries": len(localized.query_ids),
            "phrases": len(np.unique(localized.query_phrase)),
            "images_without_proposals": int((proposals == 0).sum()),
            "queries_without_proposals": int((proposals[localized.query_image] == 0).sum()),
            "phrases_without_known_word": int((~localized.known).sum()),
            "most_proposals": int(proposals.max(initial=0)),
        },
    )


def figures(
    localized: Localized,
    ranked: Ranked,
    chosen: np.ndarray | None = None,
    with_intervals: bool = True,
) -> Figures:
    """Return `MEASURES` of all queries, or of a mask (queries,) bool, in percent."""
    rows = np.arange(len(localized.query_ids)) if chosen is None else np.flatnonzero(chosen)
    values = np.where([right[rows] for right in right_queries(ranked).values()], 100.0, 0.0)
    result = dict(zip(MEASURES, values.mean(axis=1).tolist(), strict=True))
    if with_intervals:
        bounds = mean_intervals(values, localized.query_image[rows], len(localized.image_ids))
        for end, of in zip(("low", "high"), bounds.tolist(), strict=True):
            result |= {f"{name}_{end}": v for name, v in zip(MEASURES, of, strict=True)}
    return result


def right_queries(ranked: Ranked) -> dict[str, npt.NDArray[np.bool_]]:
    """Return for each of `MEASURES` which queries count as correct, (queries,)."""
    first = ranked.first_hit
    recalls = {f"phrase_to_region_r{k}": first < k for k in CUTOFFS}
    return {**recalls, "bound": first < NO_HIT, "pointing_game": ranked.pointed}


def markdown(table: LocalizationTable, published: Mapping[str, Mapping[str, str]]) -> str:
    """Return the rows, published ones by system, and those of the types, as Markdown tables."""
    columns = {column.name: column.title for column in COLUMNS}
    rows = [[name, *(_cell(row, c) for c in columns)] for name, row in table.rows.items()]
    rows += [[name, *(row.get(c, "") for c in columns)] for name, row in published.items()]
    text = markdown_table(["system", *columns.values()], rows)
    if not table.types:
        return text
    del columns[_MAP.name]
    types = [
        [name, f"{row['queries']:.0f}", *(_cell(row, c) for c in columns)]
        for name, row in table.types.items()
    ]
    return f"{text}\n{markdown_table(['type', 'queries', *columns.values()], types)}"


def _cell(row: Figures, column: str) -> str:
    if column not in row:
        return ""
    if f"{column}_low" not in row:
        return f"{row[column]:.1f}"
    return f"{row[column]:.1f} ± {(row[f'{column}_high'] - row[f'{column}_low']) / 2:.1f}"


def _map(precisions: np.ndarray) -> Figures:
    return {_MAP.name: 100.0 * float(np.nanmean(precisions))}
