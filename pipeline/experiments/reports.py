"""The report of a dataset's experiments, from where `pipeline.run` put their files."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.experiments.layout import DATA, Layout
from pipeline.progress import QUIET, Monitor
from pipeline.report import write
from pipeline.report.results import Folders


def write_report(
    dataset: str | Path | Folders,
    out: str | Path | None = None,
    *,
    html: str | Path | None = None,
    first: Sequence[str] = (),
    root: str | Path = DATA,
    monitor: Monitor = QUIET,
) -> write.Report:
    """Join the recall tables of all experiments of a dataset, and make pages of them if asked.

    Parameters
    ----------
    dataset : str, Path or Folders. Folder of a prepared dataset, whose results are read from below
        `root`; or the folders of results that are elsewhere.
    out : str, Path or None. Folder of `recall.json`, `recall.csv` and `recall.md`; None:
        report/DATASET below `root`.
    html : str, Path or None. Folder of the pages; `index.html` is the first. None: no pages.
    first : sequence of str. Experiments that come first, in this order; others follow by name.
    root : str or Path. Folder that `pipeline.run` wrote to.
    monitor : Monitor. Receives what was written and what the pages had to leave out, and progress.

    Returns
    -------
    Report
        The rows of the joint table, and what the pages had to leave out.

    Raises
    ------
    TableError
        There is no table, or a table or a provenance is damaged.
    EmbeddingsError, ProtocolError, FileReadError, OutputError
        See `pipeline.report.write.write_report`.
    """
    if isinstance(dataset, Folders):
        folders, dataset = dataset, dataset.dataset
        layout = Layout(dataset, Path(root))
    else:
        layout = Layout(Path(dataset), Path(root))
        folders = Folders(
            layout.evaluations, layout.embedding_folders, layout.heads, layout.dataset, layout.texts
        )
    out = layout.report if out is None else out
    return write.write_report(folders, out, html=html, first=first, monitor=monitor)
