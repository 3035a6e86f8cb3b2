"""Images that child processes read are those that threads read, and no child outlives its use."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.images import batches
from pipeline.images.batches import Parallelism, picture_rows
from pipeline.images.reader_processes import ReaderProcesses
from pipeline.images.recipes import resolve_recipe
from pipeline.images.region import Picture, Region
from pipeline.images.transforms import Sample, read_sample
from pipeline.store.errors import FileReadError, PipelineError
from pipeline.store.progress import DECODE, READ, Stopwatch
from pipeline.store.shards.plan import Span
from tests.images.odd_files import photo

RECIPE = resolve_recipe("resnet152-pool")


@pytest.fixture
def pictures(tmp_path: Path) -> list[Picture]:
    """Files that are images, a missing one, a folder, and one of another format."""
    names = ["a.jpg", "new\nline.png", "bytes-\udcff.jpg"]
    for number, name in enumerate(names):
        photo(number, 40 + 9 * number, 30).save(tmp_path / name)
    (tmp_path / "words.jpg").write_text("no image")
    files = [tmp_path / name for name in ("gone.jpg", names[0], "words.jpg", *names[1:])]
    return [*files, tmp_path]


def same(found: list[Sample], expected: list[Sample]) -> None:
    """Check that two lists of samples have the same windows, statuses and checksums."""
    for one, other in zip(found, expected, strict=True):
        assert replace(one, windows=None) == replace(other, windows=None)
        np.testing.assert_array_equal(one.windows, other.windows)


@pytest.mark.parametrize("name", ["resnet152-pool", "vgg19-fc7-10crop"])
def test_samples_are_those_of_threads(pictures: list[Picture], name: str) -> None:
    recipe, watch = resolve_recipe(name), Stopwatch()
    read = ReaderProcesses(recipe, recipe.crop)
    expected = [read_sample(picture, recipe, recipe.crop) for picture in pictures]
    assert [sample.status for sample in expected].count(0) == 3
    same(read(pictures, watch), expected)
    assert min(watch.seconds[READ], watch.seconds[DECODE]) > 0
    same(read(pictures[:1], watch) + read(pictures[1:], watch), expected)
    box = Region(pictures[1], (2.0, 3.0, 20.0, 25.0))  # type: ignore[arg-type]
    same(read([box], watch), [read_sample(box, recipe, recipe.crop)])


def test_a_fault_of_the_system_is_not_one_of_the_file(pictures: list[Picture]) -> None:
    read = ReaderProcesses(RECIPE, RECIPE.crop)
    with pytest.raises(FileReadError, match="/proc/self/mem could not be read"):
        read([*pictures, Path("/proc/self/mem")], Stopwatch())
    expected = [read_sample(picture, RECIPE, RECIPE.crop) for picture in pictures[:2]]
    same(read(pictures[:2], Stopwatch()), expected)


def test_a_killed_child_is_named_and_replaced(pictures: list[Picture]) -> None:
    read = ReaderProcesses(RECIPE, RECIPE.crop)
    read(pictures, Stopwatch())
    (child,) = children(os.getpid())
    os.kill(child, signal.SIGKILL)
    with pytest.raises(PipelineError, match=r"status -9 while it read .*gone.jpg or one of the 5 "):
        read(pictures, Stopwatch())
    assert len(read(pictures, Stopwatch())) == len(pictures)
    del read
    wait_for_no(children(os.getpid()))


def test_children_end_with_their_parent(pictures: list[Picture], tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from pipeline.store.progress import Stopwatch\n"
        "from pipeline.images.reader_processes import ReaderProcesses\n"
        "from pipeline.images.recipes import resolve_recipe\n"
        "recipe = resolve_recipe('resnet152-pool')\n"
        "read = ReaderProcesses(recipe, recipe.crop); read([Path(sys.argv[1])], Stopwatch())\n"
        "print('read', flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(pictures[1])], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "read\n"
    found = children(parent.pid)
    assert found
    parent.kill()
    parent.communicate()
    wait_for_no(found)


class Means:
    """A network on a card, as far as reading can see."""

    recipe, recipes = RECIPE, (RECIPE,)
    window, device = RECIPE.crop, torch.device("cuda")

    def every(self, windows: torch.Tensor) -> list[torch.Tensor]:
        """Return rows that tell images apart."""
        means = windows.float().mean((1, 2, 3, 4))
        return [means[:, None].expand(-1, *RECIPE.shape).clone()]


def test_batches_are_the_same_by_threads_and_by_processes(
    pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pictures * 4
    how, spans = Parallelism(batch_size=10, threads=2, readers=2), [Span(0, 11), Span(12, 24)]
    found = []
    for worth in (10**6, 1):
        monkeypatch.setattr(batches, "_WORTH_A_PROCESS", worth)
        network: object = Means()
        found.append(list(picture_rows(spans, rows, network, how, Stopwatch())))  # type: ignore[arg-type]
        assert bool(children(os.getpid())) == (worth == 1)
    del network
    for (row, one), (other_row, other) in zip(*found, strict=True):
        assert row == other_row
        assert one.errors == other.errors
        np.testing.assert_array_equal(one.features, other.features)
        np.testing.assert_array_equal(one.source_crc32, other.source_crc32)
    wait_for_no(children(os.getpid()))


def stat(pid: str | int) -> list[str]:
    """Return state and parent of a process, and what follows them; ["Z", "0"] of one that ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["Z", "0"]


def children(parent: int) -> list[int]:
    """Return the processes that a process has started to read images."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            reads = b"reader_processes import answer" in (folder / "cmdline").read_bytes()
            if reads and stat(folder.name)[1] == str(parent):
                found.append(int(folder.name))
    return found


def wait_for_no(pids: list[int]) -> None:
    """Wait until processes are gone, or zombies whose parent has died."""
    end = time.monotonic() + 20
    while any(stat(pid)[0] != "Z" for pid in pids):
        assert time.monotonic() < end, f"{pids} are still there"
        time.sleep(0.01)
