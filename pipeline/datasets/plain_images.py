"""Plain image files, folders and tar files, here or behind URLs, as a dataset without captions."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pipeline.datasets.checks import DatasetError, check_relative
from pipeline.datasets.manifest import DATASET_FILE, MANIFEST_FILE, Manifest, read_manifest
from pipeline.datasets.readers.image_files import image_files, is_folder
from pipeline.datasets.readers.join_rows import Description, manifest_of_files
from pipeline.datasets.readers.tables.table import RejectedRows
from pipeline.datasets.readers.tables.tar_shards import SUFFIX, expand_braces, image_paths
from pipeline.datasets.source import read_lines
from pipeline.store.objects.urls import common_folder, shown, url_of
from pipeline.store.wording import counted

SPLIT = "all"
"""Split of images without a split."""

Images = str | Path | Sequence[str | Path]
"""A folder of images, an image, or a list of images and folders, or of tar files; or their URLs."""


def images_of(
    source: Images | Manifest, log: Callable[[str], object], follow_links: bool = False
) -> Manifest:
    """Return the images of a prepared dataset (folder or object), or of plain files and folders."""
    if isinstance(source, Manifest):
        return source
    if not isinstance(source, str | Path):
        return plain_images(source, log)
    path = Path(source)
    if (tars := expand_braces(path)) != [path]:
        return plain_images(tars, log)
    if url_of(path) is not None:
        return plain_images([path], log)
    prepared = any((path / name).exists() for name in (DATASET_FILE, MANIFEST_FILE))
    return (
        read_manifest(path)
        if prepared or not path.exists()
        else plain_images([path], log, follow_links)
    )


def tar_files(source: Images | Manifest) -> list[Path]:
    """Return the tar files that are named, by a pattern or one by one; [] for other images."""
    if isinstance(source, Manifest):
        return []
    paths = [source] if isinstance(source, str | Path) else source
    if not all(Path(path).suffix == SUFFIX for path in paths):
        return []
    return [tar for path in paths for tar in expand_braces(Path(path))]


def plain_images(
    paths: Iterable[str | Path], log: Callable[[str], object], follow_links: bool = False
) -> Manifest:
    """Return image files as a dataset without captions, in one split. No file is opened.

    For a single folder, ids are the paths relative to it, sorted. For several files (any suffix)
    and folders, they are relative to the deepest common folder, in the given order; a missing file
    keeps its row, with a status. For tar files, ids are those of folders of their names with the
    images in them. A URL is a folder unless it ends like an image. Files whose names cannot be ids
    are left out, and logged. `follow_links` is for links in folders that lead elsewhere.
    """
    given = [Path(path) for path in paths]
    if any(path.suffix == SUFFIX for path in given):
        return _in_tars(given, log)
    if len(given) == 1 and is_folder(given[0]):
        root = given[0] if url_of(given[0]) else given[0].resolve()
        names = list(_listed(given[0], log, follow_links))
    else:
        files = [file for path in given for file in _absolute(path, log, follow_links)]
        if not files:
            raise DatasetError("no image is named; pass a folder of images, or image files")
        root = common_folder(map(Path, files))
        names = list(dict.fromkeys(file[len(str(root)) :].lstrip("/") for file in files))
        log(f"{len(names)} images; ids are paths relative to {shown(root)}")
        if repeated := len(files) - len(names):
            log(f"{repeated} of the files were listed before and count once")
        names = _usable(names, log)
    return manifest_of_files(
        root,
        names,
        Description(root.name or "images", "image files"),
        lambda path: SPLIT,
        RejectedRows(),
    )


def _in_tars(tars: list[Path], log: Callable[[str], object]) -> Manifest:
    """Return the images in tar files, which stay there."""
    if others := [path for path in tars if path.suffix != SUFFIX]:
        raise DatasetError(
            f"{tars[0]} and {others[0]} are named together; name tar files alone, or none"
        )
    folder = common_folder(tars)
    files = _usable(dict.fromkeys(image_paths(tars, folder)), log)
    log(f"{len(files)} images in {counted(len(tars), 'tar file')}")
    if not files:
        raise DatasetError(f"{shown(tars[0])} has no image; pass tar files with images")
    return manifest_of_files(
        folder, files, Description(folder.name or "images", "tar files"),
        lambda path: SPLIT, RejectedRows(),
    )  # fmt: skip


def read_list(file: Path) -> list[Path]:
    """Return the paths in a UTF-8 text file, one per line; empty lines are skipped.

    Other bytes are kept as in names of files.
    """
    return [Path(line) for _, line in read_lines(file, errors="surrogateescape") if line.strip()]


def _usable(names: Iterable[str], log: Callable[[str], object]) -> list[str]:
    """Return the names that can be ids; the others are logged."""
    usable = []
    for name in names:
        if reason := check_relative(name):
            log(f"left out: the name {name!r} {reason}")
        else:
            usable.append(name)
    return usable


def _absolute(path: Path, log: Callable[[str], object], follow_links: bool) -> list[str]:
    """Return the absolute path of a file, or of each image file below a folder."""
    # Not resolved: a link is listed where it is named.
    absolute = os.path.normpath(path if url_of(path) else Path.cwd() / path)
    if not is_folder(path):
        return [absolute]
    return [f"{absolute}/{name}" for name in _listed(path, log, follow_links)]


def _listed(folder: Path, log: Callable[[str], object], follow_links: bool) -> tuple[str, ...]:
    images = image_files(folder, follow_links)
    left_out = ", ".join(
        f"{count} {kind.replace('_', ' ')}"
        for kind, count in images.left_out.items()
        if isinstance(count, int)
    )
    log(f"{len(images.files)} images below {shown(folder)}{left_out and f'; left out: {left_out}'}")
    for name in images.unusable:
        log(f"left out: the name {name}")
    return images.files
