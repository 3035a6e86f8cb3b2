"""The record that a run has nothing left to do, so that the same run returns its tables at once.

The steps of a run find out for themselves what is missing, each from the dataset and from the
record of its output, which takes seconds of imports alone. Once all are up to date, the state of
what decides this is kept as one SHA-256. See `pipeline.jobs.finished`, which does the same for a
feature set, and on whose records this one depends.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import DATASET_FILE, read_manifest
from pipeline.experiments.layout import Layout
from pipeline.files import write_json
from pipeline.hashing import sha256_of_json
from pipeline.jobs.finished import file_identities, finished_path, state_of_inputs
from pipeline.retrieval.tables import Row
from pipeline.schema import decode
from pipeline.shards.index import INDEX_FILE
from pipeline.shards.resume.locking import WORK_FOLDER, work_folders


@dataclass(frozen=True, kw_only=True)
class _Stored:
    state: str
    outputs: tuple[str, ...]
    tables: dict[str, dict[str, Any]]


class FinishedRun:
    """The state in which a run has last found all of its outputs up to date."""

    def __init__(self, layout: Layout, names: Iterable[str], call: Any) -> None:
        """Determine the state of all inputs, before any is used.

        Parameters
        ----------
        layout : Layout. Paths of the files.
        names : iterable of str. Experiments; a record is kept for each list of names.
        call : JSON values, everything else that decides what the run makes.
        """
        self._layout = layout
        names = list(names)
        name = f"run-{layout.name}-{sha256_of_json(names)[:16]}.finished"
        self._path = layout.root / WORK_FOLDER / name
        self._inputs: Any = None
        if (layout.dataset / DATASET_FILE).is_file():
            manifest = read_manifest(layout.dataset)
            root = manifest.image_root
            files = [f"{root}/{file}" for file in manifest.packed.files]
            self._inputs = state_of_inputs(
                [names, call], layout.dataset, [*files, *_named_files(call)]
            )

    def tables(self) -> dict[str, Row] | None:
        """Return the recall tables by experiment; None if something may have to be made."""
        try:
            found = decode(self._path.read_bytes(), _Stored)
        except (OSError, ValueError):
            return None
        same = found.state == self._state(map(Path, found.outputs), found.tables)
        return {**found.tables} if same else None

    def write(self, outputs: Iterable[Path], tables: Mapping[str, Row]) -> None:
        """Record that all outputs are up to date, unless that may change by itself.

        Parameters
        ----------
        outputs : iterable of Path. Of all steps.
        tables : mapping of str to dict. The recall tables that the run returned.
        """
        layout, paths = self._layout, list(outputs)
        # What is fitted for caption features is stored next to them.
        fitted = [layout.encoder(p.name) for p in paths if layout.text(p.name) == p]
        paths += [folder for folder in fitted if folder.exists()]
        kept = {name: dict(table) for name, table in tables.items()}
        # It only saves time: nothing fails for want of it, as on a full disk.
        with suppress(OSError):
            if (state := self._state(paths, kept)) is None:
                self._path.unlink(missing_ok=True)
            else:
                texts = [str(path) for path in paths]
                write_json(self._path, {"state": state, "outputs": texts, "tables": kept})

    def _state(self, outputs: Iterable[Path], tables: Mapping[str, Row]) -> str | None:
        """Return the state of inputs and outputs; None if either cannot be relied on."""
        if self._inputs is None:
            return None
        found: list[Any] = []
        for out in outputs:
            if not out.exists() or not _is_settled(out):
                return None
            files = sorted(path for path in out.rglob("*") if path.is_file()) or [out]
            found.append([[str(file) for file in files], file_identities(files).tolist()])
        return sha256_of_json([self._inputs, found, tables])


def _is_settled(out: Path) -> bool:
    """Return whether an output is complete, and of a feature set whether its own record exists.

    A set with failed rows has none: their images are read again in every run.
    """
    if not (out / INDEX_FILE).is_file():
        return True
    folder = out.resolve()
    return finished_path(folder).is_file() and not work_folders(folder)


def _named_files(value: Any) -> Iterator[str]:
    """Yield the files that JSON values name, such as weights and word vectors."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _named_files(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _named_files(part)
    elif isinstance(value, str):
        with suppress(OSError, ValueError):  # longer than a file name may be, or with a NUL
            if Path(value).is_file():
                yield value
