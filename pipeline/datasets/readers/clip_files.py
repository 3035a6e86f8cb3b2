"""Clip files of a published dataset, looked up by name in one folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError, check_counts, check_relative

_NAMES_SHOWN = 5


class ClipFiles:
    """The files of a folder by name, with or without suffix.

    Attributes
    ----------
    missing : list of str. Requested but missing names, each once, in request order.
    """

    def __init__(self, root: Path, subset: bool) -> None:
        """List the folder.

        Parameters
        ----------
        root : Path. The folder of the clips.
        subset : bool. Whether clips may be missing.

        Raises
        ------
        DatasetError
            The folder does not exist.
        """
        try:
            names = sorted(p.name for p in root.iterdir() if p.is_file())
        except OSError as error:
            raise DatasetError(
                f"{root} cannot be read ({error.strerror}); check the folder"
            ) from error
        self._root, self._subset = root, subset
        self._files = set(names)
        self._by_stem: dict[str, list[str]] = {}
        for name in names:
            self._by_stem.setdefault(Path(name).stem, []).append(name)
        self.missing: list[str] = []

    def find(self, name: str, where: str) -> str | None:
        """Return the file of a clip; None if it is missing and may be.

        Parameters
        ----------
        name : str. File name, with or without suffix.
        where : str. Location of `name` in its source.

        Raises
        ------
        DatasetError
            The name leaves the folder, the clip is missing, or several files have its name.
        """
        if (fault := check_relative(name)) or "/" in name:
            raise DatasetError(
                f"{where}: clip {name!r} {fault or 'names a folder'}; expected a file name"
            )
        found = [name] if name in self._files else self._by_stem.get(name, [])
        if len(found) > 1:
            raise DatasetError(
                f"{where}: clip {name!r} may be {' or '.join(found)} in {self._root}; keep one"
            )
        if not found:
            if not self._subset:
                raise DatasetError(
                    f"{where}: clip {name!r} not found in {self._root}; check the folder, or use "
                    "only the existing clips with `subset=True`"
                )
            self.missing.append(name)
            return None
        return found[0]

    def check(
        self,
        dataset: str,
        counts: dict[str, int],
        known: Mapping[str, int],
        expect: Mapping[str, int],
    ) -> dict[str, Any]:
        """Check the counts of the splits and return the notes on missing clips.

        Parameters
        ----------
        dataset : str. Its name.
        counts : dict. Number of clips found by split.
        known : mapping. Counts of the whole dataset, ignored for a subset.
        expect : mapping. Requested counts, which take precedence over the known ones.

        Raises
        ------
        DatasetError
            A split has another number of clips.
        """
        check_counts(dataset, counts, {**({} if self._subset else known), **expect})
        if not self._subset:
            return {}
        return {
            "subset_of": dict(known),
            "clips_missing": len(self.missing),
            "clips_missing_first": self.missing[:_NAMES_SHOWN],
        }
