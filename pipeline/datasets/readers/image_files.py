"""Image files below a folder, found by suffix, in a deterministic order."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePath

from pipeline.datasets.checks import DatasetError
from pipeline.store.objects.urls import shown, url_of
from pipeline.store.wording import without_secrets

SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (
        *("jpg", "jpeg", "jpe", "jfif", "mpo"),
        *("png", "apng", "gif", "bmp", "dib", "tif", "tiff", "webp"),
        *("ppm", "pgm", "pbm", "pnm"),
        *("avif", "avifs", "heic", "heif", "hif"),
    )
)
"""Suffixes of image files, in lower case."""

_NAMES_SHOWN = 5


@dataclass(frozen=True)
class ImageFiles:
    """The image files below a folder."""

    files: tuple[str, ...]  # relative to the folder, sorted by code point
    hidden: int = 0  # skipped files and folders with names that begin with a dot
    others: int = 0  # skipped files with another suffix, or that are not regular files
    linked_folders: int = 0  # links to folders below the same folder, which are not followed

    @property
    def left_out(self) -> dict[str, int]:
        """Number of skipped items by kind, without zeros; for notes and log lines."""
        counts = {
            "hidden_files_and_folders": self.hidden,
            "files_of_other_kinds": self.others,
            "links_to_folders": self.linked_folders,
        }
        return {kind: count for kind, count in counts.items() if count}


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; a URL is one unless it ends like an image."""
    if url_of(path) is None:
        return path.is_dir()
    return path.suffix.lower() not in SUFFIXES


def image_files(root: str | Path) -> ImageFiles:
    """List the image files below a folder and its subfolders, or a URL. No file is opened.

    Links to folders inside are not followed; a link that leads outside is an error.
    """
    root = Path(root)
    if (url := url_of(root)) is not None:
        return _behind(url)
    below = root.resolve()
    files: list[str] = []
    leaving: list[str] = []
    hidden = others = linked_folders = 0
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as scan:
                entries = list(scan)
        except OSError as error:
            raise DatasetError(
                f"{root / folder} cannot be read ({error.strerror}); choose a folder of images"
            ) from error
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_image = PurePath(entry.name).suffix.lower() in SUFFIXES
            if entry.name.startswith("."):
                hidden += 1
            elif entry.is_symlink() and (is_image or Path(entry.path).is_dir()):
                # Not `resolve`, which raises on circular links.
                if not Path(os.path.realpath(entry.path)).is_relative_to(below):
                    leaving.append(path)
                elif Path(entry.path).is_dir():
                    linked_folders += 1
                else:
                    files.append(path)
            elif entry.is_dir():
                waiting.append(path)
            elif is_image and entry.is_file():
                files.append(path)
            else:
                others += 1
    if leaving:
        raise DatasetError(
            f"{root} has {len(leaving)} links that lead outside, first "
            f"{sorted(leaving)[:_NAMES_SHOWN]}; copy their targets into it, or choose a folder "
            "that "
            "contains both"
        )
    return _listed(root, files, hidden, others, linked_folders)


def _behind(url: str) -> ImageFiles:
    """List the images among the objects below a URL."""
    # Imported for URLs alone: it takes 0.05 s.
    from pipeline.store.objects.sources import listing

    names = listing(url)
    plain = [name for name in names if not any(p.startswith(".") for p in name.split("/"))]
    files = [name for name in plain if PurePath(name).suffix.lower() in SUFFIXES]
    if twisted := [name for name in files if PurePath(name).as_posix() != name]:
        raise DatasetError(
            f"{without_secrets(url)} has {len(twisted)} names that are not like paths, "
            f"first {sorted(twisted)[:_NAMES_SHOWN]}; rename them, without // or /./"
        )
    return _listed(Path(url), files, len(names) - len(plain), len(plain) - len(files), 0)


def _listed(root: Path, files: list[str], hidden: int, others: int, links: int) -> ImageFiles:
    if not files:
        raise DatasetError(
            f"{shown(root)} has no image file ({others} files of other kinds, {hidden} hidden); "
            f"expected files ending in {', '.join(sorted(SUFFIXES))}"
        )
    return ImageFiles(tuple(sorted(files)), hidden, others, links)
