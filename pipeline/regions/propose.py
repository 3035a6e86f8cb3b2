"""The job of `pipeline propose`: boxes of every image of a dataset, as shards."""

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import NO_PICTURES, read_manifest
from pipeline.datasets.regions import has_phrases, read_phrases, regions_sha256
from pipeline.errors import WrongUsage
from pipeline.files import write_json
from pipeline.hashing import sha256_of_file
from pipeline.images.decode import read_image
from pipeline.progress import QUIET, Monitor
from pipeline.regions.ground_truth import true_boxes
from pipeline.regions.methods import Grid, KnownBoxes, Method, Unproposable
from pipeline.regions.opencv_methods import Bing, EdgeBoxes, SelectiveSearch, opencv
from pipeline.regions.proposals import (
    ProposalError,
    proposal_row,
    proposals_header,
    read_proposals,
)
from pipeline.regions.recall import proposal_recall
from pipeline.shards.convert.importers.boxes import read_boxes
from pipeline.shards.format import OK, REFUSED, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.resume.feature_build import ShardBuild

METHODS = ("edge-boxes", "selective-search", "bing", "grid", "boxes", "ground-truth")
RECALL_FILE = "recall.json"
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
    boxes: str | Path | None = None,
    model: str | Path | None = None,
    threads: int | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Propose boxes on a dataset's images, and write them as shards.

    A photo that cannot be read keeps its row, without boxes and with a reason. The same call goes
    on where the last one stopped, and gives the same bytes on any number of threads. Where the
    dataset has phrases with boxes, the recall of the proposals is logged and written beside the
    shards, as `recall.json`.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the shards.
    method : of `METHODS`.
    number : most boxes of an image; "ground-truth" gives all that there are.
    split : only the images of this split; None takes all.
    limit : only the first images, this many; None takes all.
    boxes : file of the boxes of the method "boxes"; see
        `pipeline.shards.convert.importers.boxes.read_boxes`. Its ids are those of the images.
    model : folder of BING's model, or file of an edge model for EdgeBoxes (None: gradients).
    threads : photos at once; None: one for each core.
    monitor : gets log lines and progress.

    Returns
    -------
    FeatureIndex
        Of the finished shards, whose rows are images; see `pipeline.regions.proposals`.

    Raises
    ------
    WrongUsage
        A method of no known name, a number below 1, or a file that the method lacks or cannot use.
    DatasetError
        The dataset cannot be read, or has no phrases with boxes where these are asked for.
    ProposalError
        The method cannot be had, or there is no box at all.
    ImageReadError, ShardError
        The system is at fault; finished rows are kept.
    """
    if number < 1:
        raise WrongUsage(f"the number of proposals is {number}; it must be at least 1")
    manifest = read_manifest(dataset).require("images", "pipeline propose", NO_PICTURES)
    entries = manifest.select(split)[:limit]
    ids = [entry.id for entry in entries]
    proposer = _method(method, Path(dataset), split, number, boxes, model)
    if isinstance(proposer, KnownBoxes) and not any(image in proposer.boxes for image in ids):
        raise ProposalError(
            f"{boxes or dataset} has boxes of none of the {len(ids)} images, such as "
            f"{next(iter(proposer.boxes), 'none')!r}; the dataset's ids are such as {ids[0]!r}"
        )
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
    if has_phrases(dataset):
        _write_recall(Path(out), Path(dataset), split, {*ids}, monitor)
    return index


def _write_recall(
    out: Path, dataset: Path, split: str | None, images: set[str], monitor: Monitor
) -> None:
    phrases = [phrase for phrase in read_phrases(dataset, split) if phrase.image in images]
    found = proposal_recall(read_proposals(out), phrases)
    write_json(out / RECALL_FILE, found)
    shares = ", ".join(
        f"{value:.1f} % at {key.rpartition('_')[2]}"
        for key, value in found.items()
        if key.startswith("recall_at_")
    )
    monitor.log(
        f"recall at IoU 0.5 over {found['phrases']} phrases: {shares} proposals; "
        f"{found['mean_proposals']} an image, {found['images_without_proposals']} images without"
    )


def _method(
    name: str,
    dataset: Path,
    split: str | None,
    number: int,
    boxes: str | Path | None,
    model: str | Path | None,
) -> Method:
    if (boxes is not None) != (name == "boxes"):
        raise WrongUsage("the method boxes, and no other, needs a file: --boxes FILE")
    if model is not None and name not in ("bing", "edge-boxes"):
        raise WrongUsage(f"--model is of bing and edge-boxes; {name} has none")
    if model is not None and not Path(model).exists():
        raise ProposalError(f"{model} is not there; give the model's path")
    if name == "grid":
        return Grid(number)
    if name == "edge-boxes":
        opencv()
        return EdgeBoxes(number, None if model is None else Path(model))
    if name == "selective-search":
        opencv()
        return SelectiveSearch()
    if name == "bing":
        opencv()
        if model is None:
            raise WrongUsage("bing needs the folder of its trained model: --model FOLDER")
        return Bing(Path(model))
    if boxes is not None:
        found = read_boxes(boxes)
        return KnownBoxes(
            {"name": name},
            (Path(boxes).name, sha256_of_file(Path(boxes))),
            {image: values for image, (values, _) in found.items()},
            {image: scores for image, (_, scores) in found.items()},
        )
    if name == "ground-truth":
        phrases = read_phrases(dataset, split)
        truth = true_boxes(phrases)
        return KnownBoxes(
            {"name": name},
            ("regions.jsonl", regions_sha256(dataset)),
            truth,
            {image: np.ones(len(found), np.float32) for image, found in truth.items()},
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
