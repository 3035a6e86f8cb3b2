"""The campaign of other people's files: what ends a reading is found, and ends no other."""

import faulthandler
import os
import signal
from pathlib import Path

import pytest

from bench.endurance import corpora
from bench.endurance.corpora import _claims, _files, _read_apart, _Reading
from bench.endurance.readers import READERS, Reader
from pipeline.errors import PipelineError

# Python 3.12 warns of every fork in a process with threads, as torch's.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def _read(folder: Path) -> object:
    (path,) = folder.iterdir()
    match path.name:
        case "crash":
            faulthandler.disable()  # pytest's, which would tell of it
            os.kill(os.getpid(), signal.SIGSEGV)
        case "error":
            raise ValueError("no such thing")
        case "refused":
            raise PipelineError("not of this kind")
        case "hang":
            while True:
                pass
    return None


def test_each_reading_ends_as_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "SECONDS", 0.2)
    names = ["read", "crash", "error", "refused", "hang", "read"]
    for name in names:
        (tmp_path / name).touch()
    reader = Reader("any", ("*",), _read)
    readings = [_Reading(tmp_path / name, reader, Path(name), None) for name in names]
    found = [(reading, how, text) for reading, how, text in _read_apart(readings, tmp_path)]
    assert [reading for reading, _, _ in found] == readings
    endings = ["read", "crash", "ValueError", "refused", "hang", "read"]
    assert [how for _, how, _ in found] == endings
    assert found[1][2] == "signal 11"


def test_a_file_is_for_all_readers_that_may_meet_it(tmp_path: Path) -> None:
    (tmp_path / "inputs/coco").mkdir(parents=True)
    (tmp_path / "inputs/coco/captions.json").touch()
    for name in (".git/x.json", "b/x.JSON", "b/a"):
        (tmp_path / "corpus" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "corpus" / name).touch()
    (tmp_path / "corpus/link").symlink_to(tmp_path / "corpus/b/a")
    files = list(_files([tmp_path / "corpus"]))
    assert [path.name for path in files] == ["a", "x.JSON"]
    media = {"pictures", "clips", "sounds"}
    claims = [{r.reader.name: r for r in _claims(path, tmp_path / "inputs")} for path in files]
    assert [{*names} for names in claims] == [media, media | {"coco"}]
    assert claims[1]["coco"].place == Path("captions.json")
    assert {reader.name for reader in READERS} > media
