"""Files that appear whole or not at all, and what killed writers of them have left."""

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import fsspec
import h5py
import numpy as np
import pytest

import pipeline
from pipeline.store.errors import WrongUsage
from pipeline.store.files import (
    OutputError,
    appearing_whole,
    file_name,
    require_folder,
    require_held,
    write_text,
)
from tests.project import PROJECT

WRITER = """
import os, signal, sys
from pathlib import Path
from pipeline.store.files import appearing_whole

with appearing_whole(Path(sys.argv[1])) as part:
    part.write_text("half")
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    print("writing", flush=True)
    input()
"""


def writer(path: Path, end: str) -> subprocess.Popen[str]:
    """Start a process that is killed while it writes, or that ends once it gets a line."""
    return subprocess.Popen(
        [sys.executable, "-B", "-c", WRITER, str(path), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        text=True,
    )


def parts(folder: Path) -> set[Path]:
    return set(folder.glob("*.part"))


def kill_one(path: Path) -> Path:
    """Return the part that a killed writer of `path` leaves."""
    before = parts(path.parent)
    with writer(path, "killed") as killed:
        assert killed.wait() == -signal.SIGKILL
    (part,) = parts(path.parent) - before
    return part


def test_what_a_killed_writer_left_goes_but_never_what_a_live_one_writes(tmp_path: Path) -> None:
    path, other = tmp_path / "[a].json", tmp_path / "other.json"
    left, left_of_other = kill_one(path), kill_one(other)
    with writer(path, "lives") as live:
        assert live.stdout is not None
        assert live.stdout.readline() == "writing\n"
        (of_live,) = parts(tmp_path) - {left, left_of_other}
        write_text(path, "mine")
        assert path.read_text() == "mine"
        assert of_live in parts(tmp_path)
        live.communicate("\n")
    assert live.returncode == 0
    assert path.read_text() == "half", "the last rename wins"
    write_text(path, "mine")
    assert parts(tmp_path) == {left_of_other}
    with appearing_whole(tmp_path / "new") as part:
        part.touch()
        write_text(other, "mine")
        assert parts(tmp_path) == {part}


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    write_text(path, "first")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "second\udc80")
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a|b", "a\\b", "a\nb", " a", "-a", "a" * 201, "a@/\t"]
)
def test_a_name_that_cannot_be_one_file_is_refused(name: str) -> None:
    with pytest.raises(WrongUsage, match="it names files and rows of tables"):
        file_name(name)


def test_outputs_need_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name, what in (("file", "a file"), ("link", "a link that leads nowhere")):
        with pytest.raises(OutputError, match=f"{name} is {what}, so .*out cannot be a folder"):
            require_folder(tmp_path / name / "out")
    require_folder(tmp_path / "a" / "b")


@pytest.mark.parametrize(("number", "refused"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_flushes_no_folders_is_used(
    number: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flush(descriptor: int, flush: Callable[[int], None] = os.fsync) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        flush(descriptor)

    monkeypatch.setattr("os.fsync", flush)
    with pytest.raises(OSError, match="Input/output") if refused else nullcontext():
        write_text(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"


def test_ids_of_models_become_names_of_files() -> None:
    assert file_name("vsepp@transformers:a/b-grid") == "vsepp@transformers:a--b-grid"
    assert file_name("vgg19/fc7", of_model=True) == "vgg19--fc7"
    assert file_name("ours é (lr=0.1), 2") == "ours é (lr=0.1), 2"


def test_parts_of_others_stay(tmp_path: Path) -> None:
    names = ("b.0123456789ab.part", "a.part", "a.x.part", "xa.0123456789ab.part")
    for name in (*names, "a.0123456789ab.part"):
        (tmp_path / name).touch()
    write_text(tmp_path / "a", "")
    assert {path.name for path in tmp_path.iterdir()} == {"a", *names}


def test_a_dataset_that_claims_more_than_its_file_can_hold_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        claimed = file.create_dataset("claimed", shape=(2**31,), dtype="f4", chunks=(2**16,))
        packed = file.create_dataset("packed", data=np.zeros(2**23), compression="gzip")
        small = file.create_dataset("never written", shape=(9,), dtype="f4")
        file["empty"] = h5py.Empty("f4")
        with pytest.raises(ValueError, match=r"/claimed claims 8,589,934,592 bytes.*holds 0"):
            require_held(claimed)
        with pytest.raises(ValueError, match="/group is a group"):
            require_held(file.create_group("group"))
        for dataset in (packed, small, file["empty"]):
            assert require_held(dataset) is dataset


def test_no_folder_is_made_for_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("memory://x/a", Path("s3://bucket/a"), "file:/x/a"):
        with pytest.raises(OutputError, match="is a URL, expected a path on this machine"):
            pipeline.write_features(url, ["a"], np.zeros((1, 2)), recipe={"name": "zeros"})
    with appearing_whole(Path("memory://x/file.txt")) as part:
        part.write_text("sent")
    assert fsspec.filesystem("memory").cat_file("/x/file.txt") == b"sent"
    assert [*tmp_path.iterdir()] == []
    Path("odd:").mkdir()
    for path in (Path("odd:/a"), Path("a:b/c"), tmp_path / "http:/a"):
        with appearing_whole(path) as part:
            part.write_text("x")
        assert path.read_text() == "x"
