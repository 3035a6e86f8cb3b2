"""Reports of a dataset: experiments, localized phrases, generated captions."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.datasets.image_truth import truth_of
from pipeline.datasets.manifest import read_manifest
from pipeline.experiments.layout import Layout, NotMade
from pipeline.store.progress import QUIET, Monitor
from pipeline.studies.embedding_map.plane import Projection
from pipeline.web.report import write
from pipeline.web.report.results import Folders


def write_report(
    dataset: str | Path | Folders,
    out: str | Path | None = None,
    *,
    html: str | Path | None = None,
    first: Sequence[str] = (),
    projection: Projection = "pca",
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> write.Report:
    """Join the recall tables of all experiments of a dataset, and optionally write HTML pages.

    Parameters
    ----------
    dataset : str, Path or Folders. Folder of a prepared dataset, whose results are below `root`; or
        other folders of results.
    out : str, Path or None. Folder of `recall.json`, `recall.csv` and `recall.md`; None:
        report/DATASET below `root`.
    html : str, Path or None. Folder of the pages, starting at `index.html`. None: no pages.
    first : sequence of str. Experiments listed first, in this order; others follow by name.
    projection : str. Projection of the maps: "pca" or the slower "tsne".
    root : str, Path or None. Output folder of `pipeline.run`; None: see `Layout`.
    monitor : Monitor. Receives progress, and log lines on written files and omitted parts.

    Returns
    -------
    Report
        The rows of the joint table, and the omitted parts of the pages.

    Raises
    ------
    NotMade
        No experiment has been evaluated on the dataset.
    EmbeddingsError
        There is no table, a table or provenance record is corrupt, or an embedding file contradicts
        its table.
    FileReadError, OutputError
        A system error prevented reading an image, or a folder is not writable.

    Examples
    --------
    >>> report = pipeline.write_report("data/mine", "report")
    >>> list(report.rows)
    ['qian2018-baseline']
    """
    if isinstance(dataset, Folders):
        folders, dataset = dataset, dataset.dataset
        layout = Layout(dataset, root)
    else:
        layout = Layout(dataset, root)
        folders = Folders(
            layout.evaluations, layout.embedding_folders, layout.heads, layout.dataset, layout.texts
        )
    if not folders.evaluations.is_dir():
        data = "" if layout == Layout(dataset) else f" --data {layout.root}"
        raise NotMade(
            f"{folders.evaluations} not found: no experiment has been evaluated on {dataset} yet; "
            "run one of `pipeline list experiments` with "
            f"`pipeline run NAME --dataset {dataset}{data}`"
        )
    out = layout.report if out is None else out
    return write.write_report(
        folders, out, html=html, first=first, projection=projection, monitor=monitor
    )


def write_region_report(
    dataset: str | Path,
    html: str | Path,
    *,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> None:
    """Write the page of all localization files of a dataset, `localization.html`."""
    # Imported here, as below: tables need no plotting.
    from pipeline.web.report.localizations import write_localization_page

    layout = Layout(dataset, root)
    files = sorted(layout.localizations.glob("*.h5"))
    write_localization_page(files, layout.dataset, Path(html), monitor=monitor)


def write_caption_report(
    dataset: str | Path,
    html: str | Path,
    *,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> None:
    """Write the page of all generated captions of a dataset, `captions.html`."""
    from pipeline.web.report.caption_report import write_captions_page

    layout = Layout(dataset, root)
    write_captions_page(
        sorted(layout.captions("x").parent.glob("*.jsonl")),
        layout.caption_scores("x").parent,
        layout.dataset,
        Path(html),
        truth=truth_of(read_manifest(layout.dataset)),
        regularities=sorted(layout.regularities("x").parent.glob("*.json")),
        monitor=monitor,
    )
