"""Record of a finished run, so that repeating it returns its tables at once.

Each step of a run checks whether its output is up to date, which takes seconds for imports alone.
Once all steps are up to date, a SHA-256 of the state of all inputs and outputs is stored; while it
matches, the same call skips the steps. `pipeline.store.jobs.finished` does the same for a feature
set, and this record depends on its records.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import DATASET_FILE, read_manifest
from pipeline.experiments.layout import Layout
from pipeline.retrieval.tables import Row
from pipeline.store.builder.locking import WORK_FOLDER, work_folders
from pipeline.store.files import write_json
from pipeline.store.hashing import sha256_of_json
from pipeline.store.jobs.finished import file_identities, finished_path, state_of_inputs
from pipeline.store.schema import decode
from pipeline.store.shards.index import INDEX_FILE


@dataclass(frozen=True, kw_only=True)
class _Stored:
    state: str
    outputs: tuple[str, ...]
    tables: dict[str, dict[str, Any]]


class FinishedRun:
    """State of inputs and outputs at the last run that found all outputs up to date."""

    def __init__(self, layout: Layout, names: Iterable[str], call: Any) -> None:
        """Record the state of all inputs of a run; `call` has further ones, as JSON values."""
        self._layout = layout
        names = list(names)  # one record for each list of names
        name = f"run-{layout.name}-{sha256_of_json(names)[:16]}.finished"
        self._path = layout.root / WORK_FOLDER / name
        # Read before any step runs: an input that changes during the run makes the record stale.
        self._inputs: Any = None
        if (layout.dataset / DATASET_FILE).is_file():
            manifest = read_manifest(layout.dataset)
            root = manifest.image_root
            files = [f"{root}/{file}" for file in manifest.packed.files]
            self._inputs = state_of_inputs(
                [names, call], layout.dataset, [*files, *_named_files(call)]
            )

    def tables(self) -> dict[str, Row] | None:
        """Return the recall tables by experiment; None if an output may be stale."""
        try:
            stored = decode(self._path.read_bytes(), _Stored)
        except (OSError, ValueError):
            return None
        # The tables are part of the state: edited ones are not returned.
        same = stored.state == self._state(map(Path, stored.outputs), stored.tables)
        return {**stored.tables} if same else None

    def write(self, outputs: Iterable[Path], tables: Mapping[str, Row]) -> None:
        """Record the outputs and tables of a run as up to date, unless a file may still change."""
        layout, paths = self._layout, list(outputs)
        # What is fitted for caption features is stored next to them.
        fitted = [layout.encoder(p.name) for p in paths if layout.text(p.name) == p]
        paths += [folder for folder in fitted if folder.exists()]
        rows = {name: dict(table) for name, table in tables.items()}
        # It only saves time: nothing fails for want of it, as on a full disk.
        with suppress(OSError):
            if (state := self._state(paths, rows)) is None:
                self._path.unlink(missing_ok=True)
            else:
                texts = [str(path) for path in paths]
                write_json(self._path, {"state": state, "outputs": texts, "tables": rows})

    def _state(self, outputs: Iterable[Path], tables: Mapping[str, Row]) -> str | None:
        """Return the state of inputs and outputs; None if either is unreliable."""
        if self._inputs is None:
            return None
        identities: list[Any] = []
        for out in outputs:
            if not out.exists() or not _is_settled(out):
                return None
            files = sorted(path for path in out.rglob("*") if path.is_file()) or [out]
            identities.append([[str(file) for file in files], file_identities(files).tolist()])
        return sha256_of_json([self._inputs, identities, tables])


def _is_settled(out: Path) -> bool:
    """Return whether an output is complete; a feature set also needs its own record."""
    if not (out / INDEX_FILE).is_file():
        return True
    # A set with failed rows has no record, since every run reads their images again.
    folder = out.resolve()
    return finished_path(folder).is_file() and not work_folders(folder)


def _named_files(value: Any) -> Iterator[str]:
    """Yield the files named in JSON values, such as weights and word vectors."""
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
