"""Proposals as rows of a feature set."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from pipeline.datasets.regions import read_phrases, regions_sha256
from pipeline.images.decoding.decode import UnusableImage, read_image, source_crc32
from pipeline.regions import METHODS, RegionError
from pipeline.regions.methods import Method, grid, known_boxes, true_boxes
from pipeline.regions.opencv_methods import bing, edge_boxes, opencv, selective_search
from pipeline.regions.proposals import proposal_row, proposals_header
from pipeline.store.convert.importers.boxes import read_boxes
from pipeline.store.errors import WrongUsage
from pipeline.store.hashing import sha256_of_file
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.ordered import ending_at_once, in_order
from pipeline.store.jobs.origins import Files
from pipeline.store.objects.urls import absolute
from pipeline.store.progress import FORWARD, Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.shipping import Ship

# Images to prefetch.
_AHEAD = 8


@dataclass(frozen=True)
class Proposer:
    """A proposal method with its settings.

    Parameters
    ----------
    method : str. "edge-boxes", "selective-search", "bing", "grid", "boxes" or "ground-truth".
    number : int. Maximum number of boxes per image, at least 1; "ground-truth" returns all.
    boxes : str, Path or None. File of boxes by image id, for the method "boxes";
        `pipeline.store.convert.importers.boxes.read_boxes` defines its formats.
    model : str, Path or None. Folder of BING's model, or file of an edge model for EdgeBoxes (None:
        gradients).

    Raises
    ------
    WrongUsage
        A setting does not apply to the method, or is missing.

    Examples
    --------
    >>> proposer = pipeline.Proposer("grid", number=50)
    >>> pipeline.propose("data/mine", "data/proposals/mine/grid", proposer=proposer).rows
    24
    """

    method: str
    number: int = 100
    boxes: str | Path | None = None
    model: str | Path | None = None

    def __post_init__(self) -> None:
        if self.number < 1:
            raise WrongUsage(f"the number of proposals is {self.number}; it must be at least 1")
        if (self.boxes is not None) != (self.method == "boxes"):
            raise WrongUsage("the method boxes requires `boxes=FILE`; no other accepts it")
        if self.model is not None and self.method not in ("bing", "edge-boxes"):
            raise WrongUsage(f"`model=...` applies to bing and edge-boxes, not to {self.method}")


@dataclass(frozen=True)
class ProposalSource:
    """Proposals of images as a `FeatureSource`."""

    header: FeatureHeader  # its row shape has the maximum number of boxes
    ids: Sequence[str]
    images: Sequence[Path]
    method: Method
    named: tuple[Proposer, Path, str | None]  # arguments of `method_of`, for workers
    threads: int | None  # images processed at once; None: one per core
    unit: str = "image"
    gpu: bool = False

    @property
    def origin(self) -> Files:
        """The image files."""
        return Files(self.images, "images", source_crc32, self._threads)

    @property
    def _threads(self) -> int:
        return self.threads or len(os.sched_getaffinity(0))

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Propose boxes on the images of some spans, with prefetch."""
        rows = (row for span in spans for row in range(span.start, span.stop))
        with (
            ThreadPoolExecutor(self._threads, thread_name_prefix="propose") as pool,
            ending_at_once(pool),
        ):
            yield from in_order(
                rows, lambda row: pool.submit(self._row, row, watch), self._threads + _AHEAD
            )

    def part(
        self, rows: RowNumbers, threads: int | None, ship: Ship
    ) -> Callable[[], FeatureSource]:
        """Return the source of some proposals on a worker, which builds the method once."""
        proposer, dataset, split = self.named
        boxes, model = (
            path and str(Path(path).absolute()) for path in (proposer.boxes, proposer.model)
        )
        return partial(
            _part,
            (replace(proposer, boxes=boxes, model=model), dataset.absolute(), split),
            self.header.row_shape[0],
            self.threads or threads,
            self.header.dataset,
            [self.ids[row] for row in rows.tolist()],
            [absolute(self.images[row]) for row in rows.tolist()],
        )

    def _row(self, row: int, watch: Stopwatch) -> RowBlock:
        decoded = read_image(self.images[row], watch=watch)
        status, reason = decoded.status, decoded.reason
        proposed = np.zeros((0, 4)), np.zeros(0)
        if decoded.image is not None:
            try:
                with watch.timing(FORWARD):
                    proposed = self.method.propose(self.ids[row], np.asarray(decoded.image))
            except UnusableImage as error:
                status, reason = error.status, str(error)
        return RowBlock(
            proposal_row(*proposed, self.header.row_shape[0])[None],
            np.array([status], np.uint8),
            (reason,),
            np.array([decoded.source_crc32], np.uint32),
        )


def _part(
    named: tuple[Proposer, Path, str | None],
    most: int,  # boxes per image
    threads: int | None,
    dataset: str,
    ids: Sequence[str],
    images: Sequence[Path],
) -> ProposalSource:
    """Build the source of some proposals on a worker."""
    method = _method_on_worker(*named)
    header = proposals_header(method, most, dataset)
    return ProposalSource(header, ids, images, method, named, threads)


def method_of(proposer: Proposer, dataset: Path, split: str | None) -> Method:
    """Build a proposer's method; "ground-truth" reads the phrases of a dataset's split."""
    name, boxes = proposer.method, proposer.boxes
    model = None if proposer.model is None else Path(proposer.model)
    if model is not None and not model.exists():
        raise RegionError(f"{proposer.model} does not exist; pass the model's path")
    if name == "grid":
        return grid(proposer.number)
    if name == "edge-boxes":
        return edge_boxes(proposer.number, model)
    if name == "selective-search":
        return selective_search()
    if name == "bing":
        opencv()
        if model is None:
            raise WrongUsage("bing needs the folder of its trained model: `model=FOLDER`")
        return bing(model)
    if boxes is not None:
        file, scored = Path(boxes), read_boxes(boxes)
        return known_boxes(
            name,
            (file.name, sha256_of_file(file)),
            {image: values for image, (values, _) in scored.items()},
            {image: scores for image, (_, scores) in scored.items()},
        )
    if name == "ground-truth":
        phrases = read_phrases(dataset, split)
        truth = true_boxes(phrases)
        return known_boxes(
            name,
            ("regions.jsonl", regions_sha256(dataset)),
            truth,
            {image: np.ones(len(of_image), np.float32) for image, of_image in truth.items()},
            {phrase.image: phrase.size for phrase in phrases if phrase.size},
        )
    raise WrongUsage(f"the method {name!r} is unknown; expected one of {', '.join(METHODS)}")


_method_on_worker = lru_cache(maxsize=1)(method_of)
