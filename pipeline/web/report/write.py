"""The job of `pipeline report`: joint tables of all experiments, and optional HTML pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.provenance import columns_of
from pipeline.retrieval.tables import (
    PROVENANCE_FILE,
    RECALL_FILE,
    Row,
    read_provenance,
    read_recall,
    write_joint_table,
)
from pipeline.store.files import require_folder
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.wording import counted
from pipeline.studies.embedding_map.plane import Projection
from pipeline.web.report.results import Folders


@dataclass(frozen=True)
class Report:
    """Result of a report."""

    rows: Mapping[str, Row]  # row of the joint tables by experiment, in order
    gaps: tuple[str, ...] = ()  # omitted parts of the pages, one sentence each; () without pages


def write_report(
    folders: Folders,
    out: str | Path,
    *,
    html: str | Path | None = None,
    first: Sequence[str] = (),
    projection: Projection = "pca",
    monitor: Monitor = QUIET,
) -> Report:
    """Join the recall tables of all experiments, and optionally write HTML pages."""
    evaluations, tables = folders.evaluations, Path(out)
    for folder in (tables, *([Path(html)] if html is not None else [])):
        require_folder(folder)
    paths = sorted(evaluations.glob(f"*/{PROVENANCE_FILE}"))
    measured = {path.parent.name: read_provenance(path) for path in paths}
    experiments = [
        name for name, metadata in measured.items() if "localization_sha256" not in metadata
    ]
    if of_regions := [name for name in measured if name not in experiments]:
        monitor.log(
            f"tables of regions are left out, as they have other columns: {', '.join(of_regions)}; "
            "`pipeline report --task localization` writes their page"
        )
    if not experiments:
        raise EmbeddingsError(
            f"{evaluations} holds no EXPERIMENT/{PROVENANCE_FILE} of an embedding file; run "
            f"`pipeline evaluate ... --out {evaluations}/EXPERIMENT` first"
        )
    ordered = [name for name in first if name in experiments]
    ordered += [name for name in experiments if name not in first]
    rows: dict[str, Row] = {
        name: {**columns_of(measured[name]), **read_recall(evaluations / name / RECALL_FILE)}
        for name in ordered
    }
    written = write_joint_table(tables, rows)
    monitor.log(f"{counted(len(rows), 'experiment')} in {', '.join(map(str, written))}")
    if html is None:
        return Report(rows)
    # Here, since the tables alone need no templates and no images.
    from pipeline.web.report.pages import write_pages

    gaps = write_pages(Path(html), ordered, folders, projection, monitor)
    for gap in gaps:
        monitor.log(gap)
    index = Path(html) / "index.html"
    monitor.log(f"{index}: {counted(len(ordered), 'experiment')}, {len(gaps)} things left out")
    return Report(rows, gaps)
