"""The job of `pipeline propose`: boxes of every image of a dataset, as shards."""

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.regions import read_phrases, regions_sha256
from pipeline.errors import WrongUsage
from pipeline.images.decode import read_image
from pipeline.progress import QUIET, Monitor
from pipeline.regions.ground_truth import true_boxes
from pipeline.regions.methods import Grid, KnownBoxes, Method, Unproposable
from pipeline.regions.proposals import proposal_row, proposals_header
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.format import OK, REFUSED, RowBlock
from pipeline.shards.index import FeatureIndex

METHODS = ("grid", "ground-truth")
# Photos that are read ahead of the one that is waited for.
_AHEAD = 8


def propose(
    dataset: str | Path,
    out: str | Path,
    *,
    method: str,
    number: int = 100,
    split: str | None = None,
    limit: int | None = None,
    threads: int | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Propose boxes on a dataset's images, and write them as shards.

    A photo that cannot be read keeps its row, without boxes and with a reason. The same call goes
    on where the last one stopped, and gives the same bytes on any number of threads.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the shards.
    method : of `METHODS`.
    number : most boxes of an image; "ground-truth" gives all that there are.
    split : only the images of this split; None takes all.
    limit : only the first images, this many; None takes all.
    threads : photos at once; None: one for each core.
    monitor : gets log lines and progress.

    Returns
    -------
    FeatureIndex
        Of the finished shards, whose rows are images; see `pipeline.regions.proposals`.

    Raises
    ------
    WrongUsage
        A method of no known name, or a number below 1.
    DatasetError
        The dataset cannot be read, or has no phrases with boxes where these are asked for.
    ProposalError
        The method cannot be had, or there is no box at all.
    ImageReadError, ShardError
        The system is at fault; finished rows are kept.
    """
    if number < 1:
        raise WrongUsage(f"the number of proposals is {number}; it must be at least 1")
    manifest = read_manifest(dataset)
    entries = manifest.select(split)[:limit]
    ids = [entry.id for entry in entries]
    proposer = _method(method, Path(dataset), split, number)
    if isinstance(proposer, KnownBoxes) and method == "ground-truth":
        number = max((len(proposer.boxes[i]) for i in ids if i in proposer.boxes), default=1)
    header = proposals_header(
        proposer.recipe, number, manifest.name, *proposer.model, proposer.packages
    )
    paths = {entry.id: manifest.image_root / entry.file for entry in entries}
    started = time.monotonic()
    with ShardBuild(out, header, ids) as build:
        done, failed = build.rows_done, 0
        computed = len(ids) - done
        with monitor.progress(method, "image") as progress:
            for first_row, block in _blocks(build, paths, proposer, number, threads):
                build.append(first_row, block)
                done += len(block)
                failed += int((block.status != OK).sum())
                progress(done, len(ids), failed)
        index = build.publish()
    seconds = time.monotonic() - started
    monitor.log(
        f"{computed} images in {seconds:.1f} s ({1000 * seconds / max(computed, 1):.1f} ms an "
        f"image), {index.failed_rows} failed"
    )
    return index


def _method(name: str, dataset: Path, split: str | None, number: int) -> Method:
    if name == "grid":
        return Grid(number)
    if name == "ground-truth":
        phrases = read_phrases(dataset, split)
        boxes = true_boxes(phrases)
        return KnownBoxes(
            {"name": name},
            ("regions.jsonl", regions_sha256(dataset)),
            boxes,
            {image: np.ones(len(found), np.float32) for image, found in boxes.items()},
            {phrase.image: phrase.size for phrase in phrases if phrase.size},
        )
    raise WrongUsage(f"no method is called {name!r}; known are {', '.join(METHODS)}")


def _blocks(
    build: ShardBuild, paths: dict[str, Path], method: Method, most: int, threads: int | None
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the pending rows in order, computed ahead on threads."""

    def row(image_id: str) -> RowBlock:
        decoded = read_image(paths[image_id])
        status, reason = decoded.status, decoded.reason
        found = np.zeros((0, 4)), np.zeros(0)
        if decoded.image is not None:
            try:
                found = method(image_id, np.asarray(decoded.image))
            except Unproposable as fault:
                status, reason = REFUSED, str(fault)
        return RowBlock(
            proposal_row(*found, most)[None],
            np.array([status], np.uint8),
            (reason,),
            np.array([decoded.source_crc32], np.uint32),
        )

    count = threads or len(os.sched_getaffinity(0))
    waiting: deque[tuple[int, Future[RowBlock]]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="propose") as pool:
        try:
            for number in (row for span in build.pending() for row in range(span.start, span.stop)):
                if len(waiting) == count + _AHEAD:
                    done, block = waiting.popleft()
                    yield done, block.result()
                waiting.append((number, pool.submit(row, build.ids[number])))
            for done, block in waiting:
                yield done, block.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
