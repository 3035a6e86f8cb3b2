"""Clip files of a published dataset, looked up by name in one folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError, check_relative

_NAMES_SHOWN = 5


class ClipFiles:
    """The files of a folder by name, with or without suffix."""

    def __init__(self, root: Path, subset: bool) -> None:
        """List the folder; with `subset`, clips may be missing."""
        try:
            names = sorted(p.name for p in root.iterdir() if p.is_file())
        except OSError as error:
            raise DatasetError(
                f"{root} cannot be read ({error.strerror}); check the folder"
            ) from error
        self._root, self._subset = root, subset
        self._by_name: dict[str, list[str]] = {}
        for name in names:
            self._by_name.setdefault(Path(name).stem, []).append(name)
        self._by_name |= {name: [name] for name in names}
        self._missing: list[str] = []  # each once, in request order

    def find(self, name: str, where: str) -> str | None:
        """Return the file of a clip, named with or without suffix; None: missing, as may be."""
        if (reason := check_relative(name)) or "/" in name:
            raise DatasetError(
                f"{where}: clip {name!r} {reason or 'names a folder'}; expected a file name"
            )
        matches = self._by_name.get(name, [])
        if len(matches) > 1:
            raise DatasetError(
                f"{where}: clip {name!r} may be {' or '.join(matches)} in {self._root}; keep one"
            )
        if matches:
            return matches[0]
        if not self._subset:
            raise DatasetError(
                f"{where}: clip {name!r} not found in {self._root}; check the folder, or use "
                "only the existing clips with `subset=True`"
            )
        self._missing.append(name)
        return None

    def expected(
        self, whole: Mapping[str, int], expect: Mapping[str, int] | None
    ) -> dict[str, int]:
        """Return the required counts: of the whole dataset, unless a subset, then `expect`."""
        return {**({} if self._subset else whole), **(expect or {})}

    def notes(self, whole: Mapping[str, int]) -> dict[str, Any]:
        """Return the notes on the missing clips of a subset."""
        if not self._subset:
            return {}
        return {
            "subset_of": dict(whole),
            "clips_missing": len(self._missing),
            "clips_missing_first": self._missing[:_NAMES_SHOWN],
        }
