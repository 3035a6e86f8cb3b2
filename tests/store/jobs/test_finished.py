"""A finished set is found to be so in a moment, and any change is found as without a record."""

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from json import loads
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.extract import extract
from pipeline.store.errors import PipelineError
from pipeline.store.jobs import finished
from pipeline.store.jobs.options import Compute, Storage
from pipeline.store.shards.verify import verify
from pipeline.store.workers.place import Place
from pipeline.text.encode import Captions, encode
from tests.images.odd_files import photo
from tests.project import Recorder

VECTORS = "a 1.0 2.0\ndog 3.0 4.0\nruns 5.0 6.0\n"


@pytest.fixture(autouse=True)
def _files_are_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust files at once, not 2 s after their last change."""
    monkeypatch.setattr(finished, "_SETTLED_NS", -(10**18))
    if tmp_path.stat().st_dev not in finished._devices_with_times():
        pytest.skip("needs a file system whose times of change are the kernel's")


def write_dataset(folder: Path, last: str = "a dog") -> Path:
    captions = ("a dog runs", "a zebra", last)
    entries = [ImageEntry(f"{n}.png", f"{n}.png", "train", (c,)) for n, c in enumerate(captions)]
    for number, entry in enumerate(entries):
        path = folder / "files" / entry.file
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            photo(number, 40, 32).save(path)
    Manifest("mine", folder / "files", tuple(entries), "none", "made", {}).write(folder)
    return folder


def texts(folder: Path, monitor: Recorder, **given: Any) -> None:
    """Encode captions as means of the vectors in a file."""
    how: dict[str, Any] = {
        "encoder": "mean",
        "vectors": str(folder / "v.txt"),
        "place": Place(),
    } | given
    encode(folder, folder / "out" / "text", monitor=monitor, **how)


def pictures(folder: Path, monitor: Recorder, **given: Any) -> None:
    how: dict[str, Any] = {"compute": Compute("random:0", threads=1, readers=1)} | given
    recipe = "efficientnet-lite0-pool"
    extract(folder, folder / "out" / "images", recipe=recipe, monitor=monitor, **how)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change a file but not its size and time of modification."""
    before = path.stat()
    path.write_bytes(change(path.read_bytes()))
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip_last(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "v.txt").write_text(VECTORS)
    return write_dataset(tmp_path)


def was_quick(make: Callable[..., None], folder: Path, **given: Any) -> bool:
    """Return whether a call looks at no caption, picture or shard."""
    looked: list[str] = []

    def watched(module: str) -> Callable[..., Any]:
        real = import_module(module).make_features

        def call(*arguments: Any, **given: Any) -> Any:
            looked.append(module)
            return real(*arguments, **given)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module in ("pipeline.text.encode", "pipeline.images.extract"):
            patch.setattr(f"{module}.make_features", watched(module))
        make(folder, Recorder(), **given)
    return not looked


@pytest.mark.parametrize("make", [texts, pictures])
def test_nothing_is_looked_at_and_the_same_is_logged(
    make: Callable[..., None], folder: Path
) -> None:
    full, quick = Recorder(), Recorder()
    make(folder, Recorder())
    (record,) = (folder / "out" / ".work").glob("*.finished")
    record.unlink()
    make(folder, full)
    assert was_quick(make, folder)
    summary = folder / "summary.json"
    make(folder, quick, place=Place(summary=summary))
    lines = [line.partition(" in 0.")[0] for line in full.lines if "of memory" not in line]
    assert [line.partition(" in 0.")[0] for line in quick.lines] == [
        line for line in lines if not line.startswith("device")
    ]
    assert loads(summary.read_text())["rows_computed"] == 0


CHANGES: dict[str, Callable[[Path], object]] = {
    "a caption": lambda folder: write_dataset(folder, "a cat"),
    "the vectors": lambda folder: rewrite(
        folder / "v.txt", lambda data: data.replace(b"3.0", b"9.0")
    ),
    "the encoder": lambda folder: (folder / "out" / "text.encoder" / "encoder.json").touch(),
    "a shard": lambda folder: rewrite(next((folder / "out" / "text").glob("*.h5")), flip_last),
    "the index": lambda folder: (folder / "out" / "text" / "index.json").unlink(),
    "another file": lambda folder: (folder / "out" / "text" / "shard-x.h5").touch(),
    "unfinished work": lambda folder: (folder / "out" / ".work" / f"text-{'0' * 16}").mkdir(),
    "a mark": lambda folder: (folder / "out" / ".work" / "text.superseded").touch(),
    "the record": lambda folder: (folder / "out" / ".work" / "text.finished").write_text("{"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_looked_for_in_full(change: Callable[[Path], object], folder: Path) -> None:
    texts(folder, Recorder())
    assert was_quick(texts, folder)
    change(folder)
    with suppress(PipelineError):  # the full check refuses some of them
        assert not was_quick(texts, folder)


def test_other_options_are_other_calls(folder: Path) -> None:
    texts(folder, Recorder())
    assert not was_quick(texts, folder, captions=Captions(trained_on="coco"))
    assert was_quick(texts, folder, captions=Captions(trained_on="coco"))
    assert was_quick(texts, folder, captions=Captions(trained_on="coco"), storage=Storage(add=True))


def test_other_software_looks_in_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts(folder, Recorder())
    monkeypatch.setattr(finished, "_software", lambda: "another version")
    assert not was_quick(texts, folder)


def test_a_changed_picture_of_the_same_size_and_time_is_found(folder: Path) -> None:
    pictures(folder, Recorder())
    assert was_quick(pictures, folder)
    rewrite(folder / "files" / "1.png", lambda data: data[:20] + b"\0\0\0\x10" + data[24:])
    changed = Recorder()
    pictures(folder, changed)
    assert any("images changed or new: 1" in line for line in changed.lines)
    assert verify(folder / "out" / "images").faults == []


def test_a_missing_picture_is_named_each_time(folder: Path) -> None:
    pictures(folder, Recorder())
    (folder / "files" / "2.png").unlink()
    for _ in range(2):
        monitor = Recorder()
        pictures(folder, monitor)
        assert any("images missing now: 1" in line for line in monitor.lines)


@pytest.mark.parametrize("why", ["just changed", "times of another machine"])
def test_what_may_change_unseen_is_read_each_time(
    why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "just changed":
        monkeypatch.setattr(finished, "_SETTLED_NS", 10**18)
    else:
        monkeypatch.setattr(finished, "_devices_with_times", frozenset)
    pictures(folder, Recorder())
    assert not was_quick(pictures, folder)
    assert not was_quick(texts, folder)
    assert not was_quick(texts, folder)
