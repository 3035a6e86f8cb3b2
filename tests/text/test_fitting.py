"""Encoders follow edited captions and other options, and nothing is left that is out of date."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.errors import UnknownName
from pipeline.store.jobs.options import Storage
from pipeline.text import FittedFileError, fitting
from pipeline.text.encode import Captions, encode
from tests.project import Recorder

FISHER = {"components": 2, "sample": 200, "pca": 3}
WORDS = (
    "dog", "cat", "bird", "horse", "runs", "sleeps", "eats", "jumps", "red", "blue", "sea", "ice",
)  # fmt: skip


def write(data: Path, captions: int = 12, edited: str | None = None, place: int = 3) -> Path:
    texts = [f"a {WORDS[n % 12]} {WORDS[(5 * n + 1) % 12]} here" for n in range(captions)]
    if edited:
        texts[place] = edited
    entries = tuple(
        ImageEntry(f"{n}.jpg", f"{n}.jpg", "test" if n % 4 == 1 else "train", (text,))
        for n, text in enumerate(texts)
    )
    Manifest("tiny", data, entries, "none", "made up", {}).write(data)
    return data


def made(data: Path, out: Path, monitor: Recorder, encoder: str, **options: Any) -> None:
    encode(data, out, encoder=encoder, storage=Storage(update=True), monitor=monitor, **options)


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of features and encoder."""
    return {
        f"{place.name}/{path.name}": path.read_bytes()
        for place in (folder / "out", folder / "out.encoder")
        for path in place.iterdir()
    }


ENCODERS = pytest.mark.parametrize(
    ("encoder", "options"),
    [("bow", {"vocabulary": "min-1"}), ("token-ids-yan", {}), ("fv-hglmm", FISHER)],
    ids=["bow", "token-ids", "fisher"],
)


@ENCODERS
def test_an_edited_caption_refits_what_was_fitted_to_it(
    encoder: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """A caption of the training split; the result is that of a first call, in the same place."""
    data, out = tmp_path / "data", tmp_path / "a" / "out"
    made(write(data), out, Recorder(), encoder, **options)
    write(data, 13, "an enormous zebra that never sleeps")
    with pytest.raises(FittedFileError, match=r"expected 10; `update=True` fits it again"):
        encode(data, out, encoder=encoder, **options)
    monitor = Recorder()
    made(data, out, monitor, encoder, **options)
    assert any("is fitted again, and all rows are recomputed" in line for line in monitor.lines)
    made(data, tmp_path / "b" / "out", Recorder(), encoder, **options)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert {path.name for path in out.parent.iterdir()} == {"out", "out.encoder", ".work"}
    again = Recorder()
    made(data, out, again, encoder, **options)
    assert any("13 rows are done" in line for line in again.lines)
    assert not any("again, and" in line for line in again.lines)


def test_a_caption_of_another_split_refits_nothing(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    made(write(data), out, Recorder(), "bow", vocabulary="min-1")
    before = (tmp_path / "out.encoder" / "encoder.json").stat().st_ino
    monitor = Recorder()
    made(write(data, edited="a zebra", place=1), out, monitor, "bow", vocabulary="min-1")
    assert (tmp_path / "out.encoder" / "encoder.json").stat().st_ino == before
    assert "captions changed or new: 1; their rows are recomputed" in monitor.lines


@pytest.mark.parametrize("moment", ["fit_encoder", "supersede", "swap", "after"])
def test_interrupted_anywhere_the_same_call_ends_in_the_same_bytes(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out, options = tmp_path / "data", tmp_path / "a" / "out", {"vocabulary": "min-1"}
    made(write(data), out, Recorder(), "bow", **options)
    write(data, 13)
    with monkeypatch.context() as patch:
        stopped = Recorder(interrupt_at=0, unit="caption") if moment == "after" else Recorder()
        if moment != "after":
            patch.setattr(fitting, moment, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            made(data, out, stopped, "bow", **options)
    made(data, out, Recorder(), "bow", **options)
    made(data, tmp_path / "b" / "out", Recorder(), "bow", **options)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert {path.name for path in out.parent.iterdir()} == {"out", "out.encoder", ".work"}


def test_other_options_move_encoder_and_features_aside_and_back(tmp_path: Path) -> None:
    data, out, monitor = write(tmp_path / "data"), tmp_path / "out", Recorder()
    made(data, out, monitor, "bow", vocabulary="min-1")
    first = files(tmp_path)
    made(data, out, monitor, "bow", vocabulary="min-2")
    assert any("was fitted with other options" in line for line in monitor.lines)
    assert len([*tmp_path.glob("out~*")]) == len([*tmp_path.glob("out.encoder~*")]) == 1
    back = Recorder()
    made(data, out, back, "bow", vocabulary="min-1")
    assert files(tmp_path) == first
    assert sum("moved back to" in line for line in back.lines) == 2
    assert any("12 rows are done" in line for line in back.lines)


def test_a_superseded_encoder_of_other_options_is_replaced(tmp_path: Path) -> None:
    data, out = write(tmp_path / "data"), tmp_path / "a" / "out"
    made(data, out, Recorder(), "bow", vocabulary="min-1")
    fitting.supersede_encoder(out.with_name("out.encoder"), out)
    for folder in (out, tmp_path / "b" / "out"):
        made(data, folder, Recorder(), "bow", vocabulary="min-2")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert {path.name for path in out.parent.iterdir()} == {"out", "out.encoder", ".work"}


def test_an_unknown_device_of_components_leaves_no_encoder(tmp_path: Path) -> None:
    data, out = write(tmp_path / "data"), tmp_path / "a" / "out"
    for storage in (Storage(), Storage(update=True)):
        with pytest.raises(UnknownName, match="gpu"):
            encode(
                data, out, encoder="bow", captions=Captions(device="gpu"), pca=2, storage=storage
            )
    assert not [*tmp_path.rglob("*.encoder")]


def test_a_damaged_encoder_is_fitted_again(tmp_path: Path) -> None:
    data, out = write(tmp_path / "data"), tmp_path / "out"
    made(data, out, Recorder(), "bow", vocabulary="min-1")
    before = files(tmp_path)
    (tmp_path / "out.encoder" / "vocabulary-bow.json").write_text("{")
    monitor = Recorder()
    made(data, out, monitor, "bow", vocabulary="min-1")
    assert any("is not usable" in line for line in monitor.lines)
    assert files(tmp_path) == before
