"""A finished call is found to be so in a moment, and any change is found as without a snapshot."""

import os
from collections.abc import Callable
from importlib import import_module
from json import loads
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import write_features
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.extract import extract
from pipeline.store.current import snapshot as snapshots
from pipeline.store.current.record import made_from
from pipeline.store.current.snapshot import Snapshot, file_identities
from pipeline.store.jobs.options import Compute, Selection
from pipeline.store.shards.verify import verify
from pipeline.store.workers.place import Place
from pipeline.text.encode import encode
from tests.images.odd_files import photo
from tests.project import Recorder


@pytest.fixture(autouse=True)
def _files_are_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust files at once, not 2 s after their last change."""
    monkeypatch.setattr(snapshots, "_SETTLED_NS", -(10**18))
    if tmp_path.stat().st_dev not in snapshots._devices_with_times():
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
    """A dataset, named weights and a named model, and three outputs of a call."""
    write_dataset(tmp_path)
    (tmp_path / "w.pth").write_text("weights")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "part").write_text("part")
    write_features(tmp_path / "out" / "f", ["a"], np.ones((1, 2), np.float32), recipe={"name": "r"})
    (tmp_path / "out" / "f.encoder").mkdir()
    (tmp_path / "out" / "f.encoder" / "encoder.json").write_text("{}")
    (tmp_path / "out" / "e.h5").write_text("rows")
    return tmp_path


def snapshot(folder: Path, select: Selection | None = None, model: str = "model") -> Snapshot:
    record = made_from(
        select or Selection(),
        Compute(weights=folder / "w.pth"),
        encoder={"name": f"sentence-transformer:{folder / model}"},
    )
    files = sorted((folder / "files").glob("*.png"))
    return Snapshot(folder / "out" / ".work" / "f.finished", record, folder, files)


def finish(folder: Path) -> None:
    outputs = [folder / "out" / name for name in ("f", "f.encoder", "e.h5")]
    snapshot(folder).write(outputs, {"mine": {"rsum": 1.5}})


CHANGES: dict[str, Callable[[Path], object]] = {
    "an image": lambda folder: rewrite(folder / "files" / "1.png", flip_last),
    "a lost image": lambda folder: (folder / "files" / "1.png").unlink(),
    "a caption": lambda folder: write_dataset(folder, "a cat"),
    "the weights": lambda folder: rewrite(folder / "w.pth", flip_last),
    "a file of the model": lambda folder: rewrite(folder / "model" / "part", flip_last),
    "a new file of the model": lambda folder: (folder / "model" / "other").touch(),
    "a shard": lambda folder: rewrite(next((folder / "out" / "f").glob("*.h5")), flip_last),
    "the index": lambda folder: (folder / "out" / "f" / "index.json").unlink(),
    "a new file": lambda folder: (folder / "out" / "f" / "shard-x.h5").touch(),
    "the encoder": lambda folder: (folder / "out" / "f.encoder" / "encoder.json").touch(),
    "a lost output": lambda folder: (folder / "out" / "e.h5").unlink(),
    "unfinished work": lambda folder: (folder / "out" / ".work" / f"f-{'0' * 16}").mkdir(),
    "a mark": lambda folder: (folder / "out" / ".work" / "f.superseded").touch(),
    "a damaged snapshot": lambda folder: (folder / "out/.work/f.finished").write_text("{"),
    "another result": lambda folder: (folder / "out/.work/f.finished").write_text(
        (folder / "out/.work/f.finished").read_text().replace("1.5", "2.5")
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_seen(folder: Path, change: str) -> None:
    assert snapshot(folder).result() is None
    finish(folder)
    assert snapshot(folder).result() == {"mine": {"rsum": 1.5}}
    CHANGES[change](folder)
    assert snapshot(folder).result() is None


def test_outputs_whose_paths_json_cannot_hold_are_checked_each_time(folder: Path) -> None:
    odd = folder / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    snapshot(folder).write([odd], 1)
    assert snapshot(folder).result() is None


def test_a_word_that_is_the_name_of_a_folder_leaves_its_contents_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    named = [*snapshots._named_files({"split": "files", "weights": "w.pth"})]
    assert named == [Path("files"), Path("w.pth")]
    assert Path("model/part") in snapshots._named_files(["sentence-transformer:model"])
    assert folder / "model" / "part" in snapshots._named_files([str(folder / "model")])


def test_other_options_and_software_are_other_calls(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(folder)
    assert snapshot(folder, Selection(limit=1)).result() is None
    assert snapshot(folder, model="lost").result() is None
    monkeypatch.setattr(snapshots, "_software", lambda: "another version")
    assert snapshot(folder).result() is None


@pytest.mark.parametrize("why", ["just changed", "times of another machine"])
def test_nothing_is_stored_while_a_change_may_go_unseen(
    why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(folder)
    if why == "just changed":
        monkeypatch.setattr(snapshots, "_SETTLED_NS", 10**18)
    else:
        monkeypatch.setattr(snapshots, "_devices_with_times", frozenset)
    assert snapshot(folder).result() is None
    finish(folder)
    assert not (folder / "out" / ".work" / "f.finished").exists()


def test_a_change_during_the_call_is_seen_by_the_next(folder: Path) -> None:
    begun = snapshot(folder)
    rewrite(folder / "files" / "1.png", flip_last)
    begun.write([folder / "out" / "f"], [])
    assert snapshot(folder).result() is None


def test_failed_rows_are_tried_each_time(folder: Path) -> None:
    (folder / "files" / "2.png").unlink()
    pictures(folder, Recorder())
    for _ in range(2):
        monitor = Recorder()
        assert not was_quick(pictures, folder, monitor=monitor)
        assert any("1 failed" in line for line in monitor.lines)


def test_consecutive_rows_of_one_file_have_its_identity(folder: Path) -> None:
    image, lost = folder / "files" / "1.png", folder / "files" / "lost.png"
    once = file_identities([image, lost])
    assert (once[1] == -1).all()
    assert once[0, 0] == image.stat().st_size
    again = file_identities([image, image, lost, lost, image])
    assert (again == once[[0, 0, 1, 1, 0]]).all()
    assert file_identities([]).shape == (0, 5)


def texts(folder: Path, monitor: Recorder, **given: Any) -> None:
    """Encode captions as means of the vectors in a file."""
    (folder / "v.txt").exists() or (folder / "v.txt").write_text("a 1.0\ndog 3.0\nruns 5.0\n")
    how: dict[str, Any] = {"encoder": "mean", "vectors": str(folder / "v.txt")} | given
    encode(folder, folder / "out" / "text", monitor=monitor, **how)


def pictures(folder: Path, monitor: Recorder, **given: Any) -> None:
    how: dict[str, Any] = {"compute": Compute("random:0", threads=1, readers=1)} | given
    recipe = "efficientnet-lite0-pool"
    extract(folder, folder / "out" / "images", recipe=recipe, monitor=monitor, **how)


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
        make(folder, **{"monitor": Recorder(), **given})
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


def test_a_changed_picture_of_the_same_size_and_time_is_found(folder: Path) -> None:
    pictures(folder, Recorder())
    assert was_quick(pictures, folder)
    rewrite(folder / "files" / "1.png", lambda data: data[:20] + b"\0\0\0\x10" + data[24:])
    changed = Recorder()
    pictures(folder, changed)
    assert any("images changed or new: 1" in line for line in changed.lines)
    assert verify(folder / "out" / "images").faults == []


def test_changed_vectors_are_found(folder: Path) -> None:
    texts(folder, Recorder())
    assert was_quick(texts, folder)
    rewrite(folder / "v.txt", lambda data: data.replace(b"3.0", b"9.0"))
    with pytest.raises(Exception, match="update"):
        was_quick(texts, folder)
