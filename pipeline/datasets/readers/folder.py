"""User-provided images or clips: a folder, optionally with a table of paths and captions."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.links import LINKS_FOLLOWED
from pipeline.datasets.manifest import Manifest, Media
from pipeline.datasets.readers.image_files import image_files
from pipeline.datasets.readers.join_rows import Description, manifest_of_files, manifest_of_tables
from pipeline.datasets.readers.joined_images import first_folder
from pipeline.datasets.readers.tables.open_tables import (
    SPLIT_FOLDERS,
    TableOptions,
    is_folder_of_tables,
    open_table,
    source_files,
)
from pipeline.datasets.readers.tables.stored_images import ImagesInPlace, StoredImages
from pipeline.datasets.readers.tables.table import RejectedRows, Table
from pipeline.datasets.readers.tables.unpacked import UnpackedImages
from pipeline.datasets.source import source_notes
from pipeline.store.objects.urls import absolute, common_folder, url_of


def read_folder(
    root: str | Path | None,
    captions: str | Path | None = None,
    *,
    name: str,
    expect: Mapping[str, int] | None = None,
    media: Media = "images",
    options: TableOptions | None = None,
    faults: RejectedRows | None = None,
    unpack_to: Path | None = None,
) -> Manifest:
    """Read a table of paths and captions, or a folder of images without one.

    Rows with the same path are one image, in order of first appearance; its id is the path unless
    an id is specified. Equal captions of an image are all kept. Without splits, images are split
    80/10/10 into train, val and test by the hash of their id. The notes record what was detected,
    changed or skipped.

    Parameters
    ----------
    root : str, Path or None. The image root or its URL, to which the paths are relative; None: the
        folder of the captions.
    captions : str, Path or None. A table (`tables.open_tables`), a WebDataset tar file, a name with
        braces for several files, or a folder with metadata or tar files; None: the metadata of the
        root, or else all image files below it, without captions.
    name : str. The dataset's name.
    expect : mapping of str to int, or None. Required number of images by split.
    media : str. Media type of the paths: images, or clips with or without sound. No file is opened.
    options : TableOptions or None. Names of columns, encoding, splits by folder; None: defaults.
    faults : RejectedRows or None. Collects invalid rows, and states whether they are skipped;
        None: any invalid row is an error.
    unpack_to : Path or None. Folder for images that are stored in the caption files; None: they
        are read from these files, which must stay where they are.

    Returns
    -------
    Manifest
        The dataset; `Manifest.write` stores it.

    Raises
    ------
    DatasetError
        A file is missing or of another format, its columns cannot be identified, or rows are
        invalid: malformed, without caption or image file, or with a split or id that contradicts an
        earlier row. All such rows are counted and the first 20 named. Or a split has another number
        of images.

    Examples
    --------
    >>> pipeline.read_folder("data/mine/images", name="scenes")
    <Manifest scenes: 24 images (...), 0 captions, root data/mine/images>
    """
    options, rejected = options or TableOptions(), faults or RejectedRows()
    where = captions if captions is not None else root
    if where is None:
        raise DatasetError("neither a folder of images nor a file of captions was specified")
    source = Path(where)
    files = source_files(source)
    is_folder = is_folder_of_tables(source)
    folder = Path(root) if root is not None else source if is_folder else source.parent
    if captions is not None and root is not None and url_of(folder) is None and not folder.is_dir():
        raise DatasetError(f"{root} cannot be read (no such folder); check the path")
    unit = media.removesuffix("s")
    expect = expect or {}
    followed = {LINKS_FOLLOWED: True} if options.follow_links else {}
    if not files and captions is None and media == "images":
        listing = image_files(folder, options.follow_links)
        notes = source_notes([]) | followed | listing.left_out
        described = Description(name, "image folder without captions", notes, expect)
        split_of = first_folder if options.split_by_folder else _by_hash
        return manifest_of_files(folder, listing.files, described, split_of, rejected)
    if not files:
        raise DatasetError(
            f"{source} has no table of captions; expected metadata.csv, metadata.jsonl, "
            "metadata.parquet or tar files, or the name of a file"
        )
    images: StoredImages | None = None
    if media == "images":
        images = UnpackedImages(unpack_to) if unpack_to else ImagesInPlace(common_folder(files))
    tables = [open_table(file, options, images) for file in files]
    inside = any(table.images_inside for table in tables)
    if inside and captions is not None and root is not None:
        raise DatasetError(
            f"the images of {source} are stored in it, not below {folder}; omit root"
        )
    if is_folder:
        for file, table in zip(files, tables, strict=True):
            _place_in_folder(table, file, source, folder)
    described = Description(
        name,
        f"images and captions of {source.name}" if inside else f"{unit} folder and {source.name}",
        source_notes(files) | followed,
        expect,
        media,
    )
    return manifest_of_tables(tables, folder, described, options, rejected, images)


def _by_hash(path: str) -> None:
    """Return None: the split of a path is decided by its hash."""


def _place_in_folder(table: Table, file: Path, source: Path, root: Path) -> None:
    """Make the paths of a table relative to its folder, which may be a split."""
    below, whole = absolute(file.parent), absolute(root)
    if not table.images_inside and below != whole and below.is_relative_to(whole):
        table.folder = below.relative_to(whole).as_posix()
    if file.parent != source and file.parent.name in SPLIT_FOLDERS:
        table.split = file.parent.name
