"""Resolution of image paths in tables, in their usual variants."""

from collections import Counter
from collections.abc import Container
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.datasets.checks import DatasetError, check_relative
from pipeline.datasets.readers.tables.table import RowFault
from pipeline.datasets.source import in_other_form
from pipeline.store.inner_files import outer_file
from pipeline.store.objects.urls import shown, url_of


class PathResolver:
    """Finds files below a root.

    Absolute paths below the root become relative. If a path begins with the last folders of the
    root, such as `pics/a.jpg` for the root `data/pics`, and does not exist, these are removed.
    Backslashes are separators if no path of the source has a forward slash.
    """

    def __init__(self, root: Path, unit: str) -> None:
        """Store the root; `unit` is the noun for a file in messages."""
        self._root, self._unit = root, unit
        self._url = url_of(root)
        roots = [root] if self._url else [root.absolute(), root.resolve()]
        self._roots = [PurePosixPath(path) for path in roots]
        self._changed: dict[str, str] = {}
        self._absolute = 0
        self._cut: Counter[str] = Counter()
        self._backslashed: str | None = None
        self._slashed: str | None = None

    def resolve(self, path: str) -> str:
        """Return the path relative to the root, in normal form; raise unless the file exists."""
        if (resolved := self._changed.get(path)) is not None:
            return resolved
        file = path
        if "\\" in file:
            self._backslashed = self._backslashed or path
            file = file.replace("\\", "/")
        elif "/" in file:
            self._slashed = self._slashed or path
        is_absolute = file.startswith("/") or url_of(file) is not None
        if is_absolute:
            file = self._relative(file)
        if reason := check_relative(file):
            raise RowFault(
                "unusable path",
                f"{self._unit} path {path!r} {reason}; paths must stay below {shown(self._root)}",
                path,
            )
        prefix = "" if self._is_file(file, path) else self._repeated_folders(file)
        file = file.removeprefix(prefix)
        if not self._is_file(file, path):
            other = "" if self._url else in_other_form(self._root, file)
            reason = f"{self._unit} {path!r} not found below {shown(self._root)}{other}"
            raise RowFault(f"{self._unit} not found", reason, path)
        file = PurePosixPath(file).as_posix()
        if file != path:
            self._changed[path] = file
            self._absolute += is_absolute
            self._cut[prefix] += bool(prefix)
        return file

    def notes(self) -> dict[str, Any]:
        """Return the number of changed paths by kind, for the notes of a dataset."""
        if self._backslashed and self._slashed:
            raise DatasetError(
                f"the path {self._backslashed!r} has a backslash and {self._slashed!r} a forward "
                "slash, so that the folders are not clear; use forward slashes in all of them"
            )
        cut = {prefix: count for prefix, count in self._cut.items() if count}
        notes = {
            "paths_with_backslashes": bool(self._backslashed),
            "absolute_paths_made_relative": self._absolute,
            "folders_of_the_root_cut_from_paths": cut,
        }
        return {key: value for key, value in notes.items() if value}

    def _relative(self, file: str) -> str:
        for root in self._roots:
            if PurePosixPath(file).is_relative_to(root):
                return PurePosixPath(file).relative_to(root).as_posix()
        return file

    @cached_property
    def _objects(self) -> Container[str]:
        # Imported for URLs alone: it takes 0.05 s.
        from pipeline.store.objects.sources import listing

        return listing(self._url or "")

    def _is_file(self, file: str, path: str) -> bool:
        outer = outer_file(file)
        if self._url is not None:
            # What is inside of another file has just been found there.
            return outer != file or outer in self._objects
        try:
            return (self._root / outer).is_file()
        except OSError as error:
            reason = f"cannot be looked up below {self._root} ({error.strerror})"
            raise RowFault("unusable path", f"{self._unit} path {path!r} {reason}", path) from error

    def _repeated_folders(self, file: str) -> str:
        """Return the longest prefix of a path that the root ends with, or ""."""
        parts = PurePosixPath(file).parts
        for count in range(len(parts) - 1, 0, -1):
            if any(root.parts[-count:] == parts[:count] for root in self._roots):
                return "/".join(parts[:count]) + "/"
        return ""
