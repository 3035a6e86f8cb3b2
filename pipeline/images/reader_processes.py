"""Image reading in child processes, for devices that are faster than one Python process reads.

Reading by threads stops scaling at about eight of them. Here each thread that reads has a child
process do it. Paths go to the child, a JSON line for several; a JSON line on all of them and the
pixels of their windows come back. What is behind a URL is read here, since neighbours share its
blocks: in place of a path, the line has the number of bytes that follow it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.images.decoding.decode import UnusableImage, fault_of_the_system, read_bytes
from pipeline.images.recipes import Crop, Recipe, Resize
from pipeline.images.region import Picture
from pipeline.images.transforms import Sample, read_windows
from pipeline.store.errors import FileReadError, PipelineError
from pipeline.store.jobs.child_processes import ChildDied, ChildProcesses, answering
from pipeline.store.objects.urls import url_of
from pipeline.store.progress import READ, Stopwatch


class ReaderProcesses:
    """Reading of images in child processes, which end with this object."""

    def __init__(self, recipe: Recipe, window: Crop) -> None:
        self._rules = (recipe.decode, recipe.resize, window)
        first = [recipe.decode, asdict(recipe.resize), asdict(window)]
        self._children = ChildProcesses(f"{__name__}:answer", first)

    def __call__(self, pictures: Sequence[Picture], watch: Stopwatch) -> list[Sample]:
        """Read, decode, resize and crop images in one child."""
        # Only files are read in children: regions share the decoded images of this process.
        paths = [picture for picture in pictures if isinstance(picture, Path)]
        if len(paths) < len(pictures):
            return [read_windows(picture, *self._rules, watch) for picture in pictures]
        with watch.timing(READ):
            given = [path if url_of(path) is None else _fetched(path) for path in paths]
        asked = [each for each in given if not isinstance(each, Sample)]
        data = [each for each in asked if isinstance(each, bytes)]
        try:
            with self._children.one() as child:
                child.send([len(e) if isinstance(e, bytes) else str(e) for e in asked], data)
                reply: dict[str, Any] = child.reply()
                windows = np.empty(reply["shape"], np.uint8)
                child.fill(windows)
        except ChildDied as died:
            raise PipelineError(
                f"the process that reads images ended with {died} while it read "
                f"{paths[0]} or one of the {len(paths) - 1} after it; finished rows are kept: "
                "check the files and the memory of the machine, and run the same command again"
            ) from None
        if reply["failed"]:
            raise FileReadError(reply["failed"])
        watch.add_all(reply["seconds"])
        read = (
            Sample(None if index is None else windows[index], *rest)
            for index, *rest in reply["samples"]
        )
        return [each if isinstance(each, Sample) else next(read) for each in given]


def _fetched(path: Path) -> bytes | Sample:
    """Return the bytes of an image, or why there are none."""
    try:
        return read_bytes(path)
    except UnusableImage as error:
        return Sample(None, 0, error.status, str(error))
    except (OSError, MemoryError) as error:
        raise fault_of_the_system(path, error) from error


def answer() -> None:
    """Read the images that stdin names, until it ends."""
    given, out = answering()
    decode, resize, window = json.loads(given.readline())
    rules = (decode, Resize(**resize), Crop(**window))
    while line := given.readline():
        watch, failed = Stopwatch(), ""
        samples: list[tuple[int | None, int, int, str]] = []
        windows: list[np.ndarray] = []
        # All of them first: the bytes that are left would be the next line.
        pictures = [
            Path(each) if isinstance(each, str) else given.read(each) for each in json.loads(line)
        ]
        try:
            for picture in pictures:
                sample = read_windows(picture, *rules, watch)
                index = None if sample.windows is None else len(windows)
                samples.append((index, sample.source_crc32, sample.status, sample.error))
                windows += [] if sample.windows is None else [sample.windows]
        except FileReadError as error:
            failed, windows = str(error), []
        reply = {
            "failed": failed, "samples": samples, "seconds": watch.seconds,
            "shape": (len(windows), *windows[0].shape) if windows else (0,),
        }  # fmt: skip
        out.write(json.dumps(reply).encode() + b"\n")
        for pixels in windows:
            out.write(np.ascontiguousarray(pixels).data)
        out.flush()
