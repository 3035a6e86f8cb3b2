"""What every reader of a dataset promises."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.store.hashing import canonical_json


@dataclass(frozen=True)
class ReaderCase:
    """A call of a reader, and the entries that it finds."""

    read: Callable[..., Manifest]  # with the option `expect`
    rows: Sequence[tuple[str, str, str, tuple[str, ...]]]  # id, file, split and captions


class ReaderSuite:
    """Tests of a reader; its fixture `case` is a `ReaderCase`."""

    def test_its_entries_are_those_of_the_source(self, case: ReaderCase) -> None:
        assert [(e.id, e.file, e.split, e.captions) for e in case.read().entries] == case.rows

    def test_the_manifest_has_the_same_bytes_again(self, case: ReaderCase, tmp_path: Path) -> None:
        for out in ("one", "two"):
            case.read().write(tmp_path / out)
        lines = [
            canonical_json({"id": i, "file": f, "split": s, "captions": list(c)}) + "\n"
            for i, f, s, c in case.rows
        ]
        assert (tmp_path / "one/manifest.jsonl").read_text() == "".join(lines)
        for path in (tmp_path / "one").iterdir():
            assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
        assert read_manifest(tmp_path / "one").packed == case.read().packed

    def test_counts_are_asserted(self, case: ReaderCase) -> None:
        with pytest.raises(DatasetError, match="other: 0 found, 3 expected"):
            case.read(expect={"other": 3})
