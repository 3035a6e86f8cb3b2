"""Import of features in a layout of another program."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.datasets.manifest import DATASET_FILE, read_manifest
from pipeline.store.convert.importers.arrays import MatFeatures, NpyFeatures
from pipeline.store.convert.importers.bottom_up import NpzFolderFeatures, TsvFeatures
from pipeline.store.convert.importers.groups import Log, open_groups
from pipeline.store.convert.importers.id_files import (
    caption_ids,
    ids_in,
    read_ids,
    require_enough_captions,
)
from pipeline.store.convert.importers.source import ImportSource, import_rows
from pipeline.store.convert.importers.tables import TableFeatures
from pipeline.store.convert.layouts import DEFAULT_ARRAYS, IMPORTS
from pipeline.store.errors import WrongUsage
from pipeline.store.one_or_many import texts_of
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.index import FeatureIndex

# Layouts without row ids, and those that may lack them.
_WITHOUT_IDS, _TABLES = ("npy", "mat"), ("hdf5", "parquet", "safetensors")


def import_features(
    source: str | Path,
    out: str | Path,
    *,
    layout: str,
    dataset: str | Path,
    captions: bool = False,
    ids: Sequence[str] | str | Path | None = None,
    every: int = 1,
    array: str | None = None,
    axes: str | None = None,
    note: str = "",
    rows_per_shard: int | None = None,
    compress: bool = False,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Import features that another program wrote.

    An interrupted import resumes when it is repeated. The recipe records that the provenance is
    unknown: its name is "imported", with layout, file, SHA-256 and dtype of the source. Weights are
    "unknown", with a SHA-256 of zeros. Values are preserved; float64 is rounded to float32.

    Parameters
    ----------
    source : str or Path. The file or folder.
    out : str or Path. Folder of the shards.
    layout : str. A name in `pipeline.store.convert.layouts.IMPORTS`.
    dataset : str or Path. Prepared dataset of the rows, whose image ids replace image paths among
        the row ids; or only its name.
    captions : bool. The rows are of captions: the k-th row of an image has the id `<image id>#<k>`.
    ids : sequence of str, str, Path, or None. The ids in row order, or a file for `read_ids`:
        required for npy and mat, in place of those in the file for hdf5, parquet and safetensors.
    every : int. npy only: rows per image, of which one is kept; 5 in files for VSE++.
    array : str or None. Name of the array in the source; not for npy. None: as in `DEFAULT_ARRAYS`,
        or the only one.
    axes : str or None. Names of the axes, such as "row, region, channel". None: by their number.
    note : str. How the features were computed, if known; stored in the recipe.
    rows_per_shard : int or None. Rows per shard; None: as many as fit into 256 MiB, at most 65,536.
    compress : bool. Store rows in small gzip chunks.
    monitor : Monitor. Receives the progress.

    Returns
    -------
    FeatureIndex
        Index of the finished set.

    Raises
    ------
    WrongUsage
        Arguments that do not match the layout.
    ShardError
        The source does not match its layout, or holds infinities or NaN (file, row and id are
        named); ids repeat or are invalid; `axes` has the wrong number of names.

    Examples
    --------
    >>> np.save("theirs_ims.npy", np.eye(2, dtype=np.float32))
    >>> pipeline.import_features(
    ...     "theirs_ims.npy",
    ...     "features/theirs",
    ...     layout="npy",
    ...     dataset="mine",
    ...     ids=["a.jpg", "b.jpg"],
    ... ).rows
    2
    """
    if layout not in IMPORTS:
        raise WrongUsage(f"unknown layout {layout!r}; known: {', '.join(IMPORTS)}")
    if layout not in _TABLES and (ids is None) == (layout in _WITHOUT_IDS):
        raise WrongUsage(
            "`ids=...` is required for `layout=npy` and `layout=mat`, otherwise it is accepted "
            f"with {', '.join(f'`layout={name}`' for name in _TABLES)} only"
        )
    if every < 1:
        raise WrongUsage(f"`every={every}` is below 1; pass the number of rows per image")
    if every > 1 and layout != "npy":
        raise WrongUsage("`every=...` requires `layout=npy`")
    if array and layout == "npy":
        raise WrongUsage("`array=...` cannot be used with `layout=npy`, which has a single array")
    if isinstance(ids, str | Path):
        ids = read_ids(ids)
    elif ids is not None:
        ids = texts_of(ids, "id")[0]
    opened = _opened(
        Path(source), layout, ids, every, array or DEFAULT_ARRAYS.get(layout, ""), monitor.log
    )
    row_ids, name = opened.ids, str(dataset)
    if "/" in name or Path(dataset, DATASET_FILE).is_file():
        prepared = read_manifest(dataset)
        row_ids, name = ids_in(prepared, row_ids, monitor.log), prepared.name
        if captions:
            require_enough_captions(prepared, row_ids)
    with monitor.progress("import", "row") as progress:
        return import_rows(
            opened,
            out,
            name,
            caption_ids(row_ids) if captions else row_ids,
            array="" if array in (None, DEFAULT_ARRAYS.get(layout)) else array,
            note=note,
            axes=axes,
            rows_per_shard=rows_per_shard,
            compress=compress,
            progress=progress,
        )


def _opened(
    source: Path, layout: str, ids: Sequence[str] | None, every: int, array: str, log: Log
) -> ImportSource:
    if layout in _TABLES:
        return TableFeatures(source, layout, array, ids, log)
    if layout == "npy":
        return NpyFeatures(source, ids or [], every)
    if layout == "mat":
        return MatFeatures(source, ids or [], array)
    if layout == "groups":
        return open_groups(source, array, log)
    if source.is_dir():
        return NpzFolderFeatures(source, array, log)
    return TsvFeatures(source, array, log)
