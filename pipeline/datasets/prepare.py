"""Preparation of user data as a dataset: a table, a folder, a DataFrame or a `Dataset`."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import Manifest, Media
from pipeline.datasets.readers.folder import read_folder
from pipeline.datasets.readers.join_rows import Description, manifest_of_tables
from pipeline.datasets.readers.tables.columns import ColumnNames
from pipeline.datasets.readers.tables.in_memory import tables_in_memory
from pipeline.datasets.readers.tables.open_tables import TableOptions, is_folder_of_tables
from pipeline.datasets.readers.tables.table import RejectedRows
from pipeline.datasets.readers.tables.unpacked import UnpackedImages

IMAGES_FOLDER = "images"
"""Subfolder of the dataset for images that were stored in a table or an archive."""


def prepare(
    source: Any,
    out: str | Path | None = None,
    *,
    root: str | Path | None = None,
    name: str | None = None,
    path_column: str | None = None,
    caption_columns: str | Sequence[str] = (),
    split_column: str | None = None,
    id_column: str | None = None,
    columns: str | Sequence[str] = (),
    caption_separator: str | None = None,
    encoding: str | None = None,
    split_by_folder: bool = False,
    follow_links: bool = False,
    skip_bad: bool = False,
    unpack: bool = False,
    expect: Mapping[str, int] | None = None,
    media: Media = "images",
) -> Manifest:
    """Read a dataset from a source, and optionally write it.

    As `read_folder`, but with options for the columns, and also from objects in memory.

    Parameters
    ----------
    source : str, Path, URL, pandas.DataFrame, datasets.Dataset, datasets.DatasetDict, iterable of
        mappings, mapping of paths to captions, or None. A table of paths and captions; a folder
        with or without one; None: the metadata or the images of `root`.
    out : str, Path or None. Folder of the dataset; None: do not write.
    root : str, Path or None. Folder of the images. None: the folder of the source; for an object in
        memory, the common folder of absolute paths, or the current one. Images stored in an object
        as bytes are written to `out/images`, which is then the root.
    name : str or None. Name of the dataset; None: that of the folder `out`, or "dataset".
    path_column, split_column, id_column : str or None. Columns to use; None: detected by name.
    caption_columns : str or sequence of str. Caption columns, likewise.
    columns : str or sequence of str. Names of the columns of a text file without a header, such as
        "path,caption".
    caption_separator : str or None. Text between several captions in a cell, such as "|".
    encoding : str or None. Encoding of a text file without a byte order mark; None is UTF-8.
    split_by_folder : bool. Use the first folder of a path as the split of its image.
    follow_links : bool. Follow links out of the root and its repository, in folders without a table
        and in `pipeline.serve`. Other links, and those into DVC's cache, are always followed.
    skip_bad : bool. Skip invalid rows, count them in the notes and list them in `out/left-out.csv`;
        otherwise any of them is an error.
    unpack : bool. Write the images of tar and Parquet files to `out/images`, which is then the
        root; otherwise they are read from these files, which must stay where they are.
    expect : mapping of str to int, or None. Required number of images by split.
    media : str. Media type of the paths.

    Returns
    -------
    Manifest
        The dataset, as `read_manifest(out)` returns it, but with the user's own columns.

    Raises
    ------
    DatasetError
        A file is missing or of another format, its columns cannot be identified, rows are invalid,
        or a split has another number of images.

    Examples
    --------
    >>> rows = [
    ...     {"path": "scene-00000.png", "caption": "a yellow flower", "split": "train"},
    ...     {"path": "scene-00001.png", "caption": "a green fish", "split": "test"},
    ... ]
    >>> pipeline.prepare(rows, "data/table", root="data/mine/images")
    <Manifest table: 2 images (train 1, test 1), 2 captions, root ...>
    """
    folder = None if out is None else Path(out)
    name = name or (folder.resolve().name if folder else "dataset")
    captions = (caption_columns,) if isinstance(caption_columns, str) else tuple(caption_columns)
    options = TableOptions(
        ColumnNames(path_column, captions, split_column, id_column),
        tuple(columns.split(",") if isinstance(columns, str) and columns else columns),
        encoding,
        caption_separator,
        split_by_folder,
        follow_links,
    )
    rejected = RejectedRows(skip_bad)
    images_folder = folder / IMAGES_FOLDER if folder else None
    if source is None or isinstance(source, str | PathLike):
        if source is not None and root is None and is_folder_of_tables(Path(source)):
            source, root = None, source
        manifest = read_folder(
            root, source, name=name, expect=expect, media=media, options=options,
            faults=rejected, unpack_to=images_folder if unpack else None,
        )  # fmt: skip
    else:
        tables = tables_in_memory(source, options.columns)
        described = Description(name, tables[0].name, {}, expect or {}, media)
        images = UnpackedImages(images_folder) if images_folder else None
        where = None if root is None else Path(root)
        manifest = manifest_of_tables(tables, where, described, options, rejected, images)
    if folder is not None:
        rejected.write(folder)
        manifest.write(folder)
    return manifest
