"""Image files below a folder, found by suffix, in a deterministic order."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pipeline.datasets.checks import DatasetError, check_relative
from pipeline.datasets.links import is_below, own_folders
from pipeline.store.objects.urls import shown, url_of
from pipeline.store.wording import counted, without_secrets

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
    linked_folders: int = 0  # links to folders that are listed without them
    unusable: tuple[str, ...] = ()  # skipped names that cannot be ids, each with the reason

    @property
    def left_out(self) -> dict[str, Any]:
        """Number of skipped items by kind, without zeros, and their names; for notes and logs."""
        counts = {
            "hidden_files_and_folders": self.hidden,
            "files_of_other_kinds": self.others,
            "links_to_folders": self.linked_folders,
            "names_that_cannot_be_ids": len(self.unusable),
            "first_of_these_names": self.unusable[:_NAMES_SHOWN],
        }
        return {kind: count for kind, count in counts.items() if count}


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; a URL is one unless it ends like an image."""
    if url_of(path) is None:
        return path.is_dir()
    return path.suffix.lower() not in SUFFIXES


def image_files(root: str | Path, follow_links: bool = False) -> ImageFiles:
    """List the image files below a folder and its subfolders, or a URL. No file is opened.

    Links that leave the project's own data (`own_folders`) are an error, unless `follow_links`. A
    broken link is listed, as a file that is missing. Links to folders that are listed anyway are
    not followed.
    """
    root = Path(root)
    if (url := url_of(root)) is not None:
        return _behind(url)
    own = own_folders(root)
    linked: set[Path] = set()
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
                target = Path(os.path.realpath(entry.path))
                if not (follow_links or is_below(target, own)) and target.exists():
                    leaving.append(path)
                elif not target.is_dir():
                    files.append(path)
                elif is_below(target, own[:1]) or is_below(own[0], (target,)) or target in linked:
                    linked_folders += 1
                else:
                    linked.add(target)
                    waiting.append(path)
            elif entry.is_dir():
                waiting.append(path)
            elif is_image and entry.is_file():
                files.append(path)
            else:
                others += 1
    if leaving:
        raise DatasetError(
            f"{root}: {counted(len(leaving), 'link')} to a place outside, first "
            f"{sorted(leaving)[:_NAMES_SHOWN]}; follow them with `follow_links=True`, or copy "
            "their targets into it"
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
    wrong = {name: reason for name in files if (reason := check_relative(name))}
    unusable = tuple(f"{name!r} {reason}" for name, reason in sorted(wrong.items()))
    if len(wrong) == len(files):
        raise DatasetError(
            f"{shown(root)} has no image whose name can be an id: {unusable[0]}; rename the files"
        )
    return ImageFiles(tuple(sorted({*files} - {*wrong})), hidden, others, links, unusable)
