"""The clips of a published dataset, found by name in one folder; the missing refused or counted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError, check_counts, check_relative

_NAMES_SHOWN = 5


class ClipFiles:
    """The files of a folder by name, with or without their ending.

    Attributes
    ----------
    missing : names that were asked for and are not there, each once, in the order of asking.
    """

    def __init__(self, root: Path, subset: bool) -> None:
        """List the folder.

        Parameters
        ----------
        root : the folder that the clips lie in.
        subset : whether clips may be missing.

        Raises
        ------
        DatasetError
            There is no such folder.
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
        name : of a file, or of one without its ending.
        where : the place of `name` in its source.

        Raises
        ------
        DatasetError
            The name leaves the folder, the clip is missing, or several files have its name.
        """
        if (fault := check_relative(name)) or "/" in name:
            raise DatasetError(
                f"{where}: clip {name!r} {fault or 'names a folder'}; a name of a file was expected"
            )
        found = [name] if name in self._files else self._by_stem.get(name, [])
        if len(found) > 1:
            raise DatasetError(
                f"{where}: clip {name!r} may be {' or '.join(found)} in {self._root}; leave one"
            )
        if not found:
            if not self._subset:
                raise DatasetError(
                    f"{where}: clip {name!r} not found in {self._root}; check the folder, or take "
                    "the clips that are there with `subset=True`"
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
        """Assert the counts of the splits and return what is to be noted of missing clips.

        Parameters
        ----------
        dataset : its name.
        counts : clips found of each split.
        known : counts of the whole dataset, which a subset need not have.
        expect : counts that were asked for, which come before the known ones.

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
