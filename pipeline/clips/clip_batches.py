"""Batched extraction of clip features: batches span clips, and each clip is decoded once.

Reader threads decode clips ahead, a few frames at a time. The frames of successive clips fill the
batches of each recipe.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pipeline.clips.clip_file import open_clip
from pipeline.clips.frames import sampled_frames
from pipeline.clips.recipes import PARTS, ClipRecipe
from pipeline.clips.sampling import Sampling
from pipeline.images.decoding.decode import UnusableImage, fault_of_the_system
from pipeline.store.devices import device_type, one_core_each
from pipeline.store.jobs.ordered import ending_at_once, started_ahead
from pipeline.store.progress import DECODE, FORWARD, Stopwatch
from pipeline.store.shards.format import OK, RowBlock

# Pieces to decode ahead of the one that enters a batch.
_PIECES_AHEAD = 8
_BATCHES_AHEAD = 2


def default_threads(device: str) -> int:
    """Return the default number of concurrent batches: one per core, or two for a GPU."""
    return torch.get_num_threads() if device_type(device) == "cpu" else 2


def default_readers(device: str) -> int:
    """Return the default number of clips to decode at once."""
    most = 8 if device_type(device) == "cpu" else 16
    return max(1, min(most, torch.get_num_threads()))


@dataclass(frozen=True)
class View:
    """Frames and network of one recipe."""

    recipe: ClipRecipe
    run: int  # frames per output; 1 for image networks
    cut: Callable[[Image.Image], np.ndarray]  # the network's input for a frame, uint8
    network: Callable[[Tensor], Tensor]
    """Returns outputs (batch, *shape) float32 on the CPU of inputs (batch, *cut) for image
    networks, and (batch, run, *cut) for others."""
    batch_size: int  # outputs per batch


@dataclass
class _Piece:
    """Input of one output of a view, with its time in the clip."""

    view: int
    part: int
    pixels: np.ndarray


class _Runs:
    """Collects the frames of one clip into the runs of one view."""

    def __init__(self, view: int, of: View, seconds: Fraction) -> None:
        self._view, self._of, self._seconds = view, of, seconds
        # With its length limited, the last run overlaps the one before it: it ends with the clip's
        # last frame.
        self._frames: deque[tuple[Fraction, np.ndarray]] = deque(maxlen=of.run)
        self._fresh = 0

    def add(self, time: Fraction, pixels: np.ndarray) -> Iterator[_Piece]:
        """Yield the run that this frame completes, if any."""
        self._frames.append((time, pixels))
        self._fresh += 1
        if self._fresh == self._of.run:
            yield self._piece()

    def end(self) -> Iterator[_Piece]:
        """Yield a last run that ends with the clip, if a frame is not in any run yet."""
        if self._fresh:
            # A clip shorter than a run: its last frame is repeated.
            while len(self._frames) < self._of.run:
                self._frames.append(self._frames[-1])
            yield self._piece()

    def _piece(self) -> _Piece:
        self._fresh = 0
        parts = PARTS[self._of.recipe.over]
        position = self._frames[0][0] / self._seconds if self._seconds else Fraction(0)
        pixels = [frame for _, frame in self._frames]
        whole = pixels[0] if self._of.run == 1 else np.stack(pixels)
        # A frame at the very end belongs to the last part.
        return _Piece(self._view, min(int(parts * position), parts - 1), whole)


class _Reading:
    """One clip in decoding, with prefetch."""

    # `sampled_frames` is a generator over the open file, advanced on a pool thread: one future
    # holds the next few pieces while the caller consumes the current ones. So a clip never holds
    # more than two lists of `_PIECES_AHEAD` pieces, whatever its length. A failure of the file
    # becomes a status after the pieces that were decoded before it.

    def __init__(
        self,
        path: Path,
        requested: frozenset[int],
        views: Sequence[View],
        pool: ThreadPoolExecutor,
        watch: Stopwatch,
    ) -> None:
        self.path, self.requested = path, requested
        self.status, self.reason = OK, ""
        self._crc32: list[int] = []
        self._views, self._pool, self._watch = views, pool, watch
        self._pieces = self._read()
        self._next = pool.submit(self._some)

    @property
    def crc32(self) -> int:
        """CRC-32 of the file's bytes; 0 if none were read."""
        return self._crc32[0] if self._crc32 else 0

    def __iter__(self) -> Iterator[_Piece]:
        # A generator cannot be advanced by two threads: the next call starts after the last ended.
        while some := self._next.result():
            self._next = self._pool.submit(self._some)
            yield from some

    def _some(self) -> list[_Piece]:
        with self._watch.timing(DECODE):
            return list(islice(self._pieces, _PIECES_AHEAD))

    def _read(self) -> Iterator[_Piece]:
        order = sorted(self.requested)
        samplings = [Sampling(self._views[k].recipe.frames) for k in order]
        try:
            with open_clip(self.path, self._crc32) as clip:
                runs = [_Runs(k, self._views[k], clip.seconds) for k in order]
                for frame in sampled_frames(clip, samplings):
                    for k, of, times in zip(order, runs, frame.times, strict=True):
                        if times:
                            pixels = self._views[k].cut(frame.image)
                            for time in times:
                                yield from of.add(time, pixels)
                for of in runs:
                    yield from of.end()
        except UnusableImage as error:
            self.status, self.reason = error.status, str(error)
        except (OSError, MemoryError) as error:
            raise fault_of_the_system(self.path, error, "clip") from error


@dataclass
class _Reduction:
    """Running reduction of the outputs of one clip and view, in the order of its frames."""

    # Outputs are added as they arrive, so that memory does not grow with the length of a clip.

    recipe: ClipRecipe
    expected: int = 0
    received: int = 0
    counts: list[int] = field(init=False)
    sums: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        parts = PARTS[self.recipe.over]
        start = -np.inf if self.recipe.over == "max" else 0.0
        self.counts = [0] * parts
        # float64, for sums over many outputs.
        self.sums = [np.full(self.recipe.network.shape, start) for _ in range(parts)]

    def add(self, part: int, output: np.ndarray) -> None:
        """Add one output, of the network's output shape."""
        self.received += 1
        self.counts[part] += 1
        if self.recipe.over == "max":
            np.maximum(self.sums[part], output, out=self.sums[part])
        else:
            self.sums[part] += output

    def row(self) -> np.ndarray:
        """Return the row, float32."""
        joined: list[np.ndarray] = []
        for count, total in zip(self.counts, self.sums, strict=True):
            if not count:
                # A part without a frame, in a short clip, repeats the part before it.
                joined.append(joined[-1])
            else:
                joined.append(total if self.recipe.over == "max" else total / count)
        return np.concatenate(joined, axis=-1).astype(np.float32)


class _Batches:
    """Batches of one view, filled with pieces of successive clips and computed ahead."""

    # A batch may contain pieces of several clips, so each piece keeps a reference to the reduction
    # of its clip. Outputs are added in submission order, whatever the order of completion: sums of
    # floats would otherwise depend on timing.

    def __init__(self, view: View, pool: ThreadPoolExecutor, most: int, watch: Stopwatch) -> None:
        self._view, self._pool, self._most, self._watch = view, pool, most, watch
        self._filling: list[tuple[_Reduction, int, np.ndarray]] = []
        self._computing: deque[tuple[list[tuple[_Reduction, int]], Future[np.ndarray]]] = deque()

    def add(self, reduction: _Reduction, piece: _Piece) -> None:
        """Add a piece to the current batch; submit the batch when it is full."""
        self._filling.append((reduction, piece.part, piece.pixels))
        if len(self._filling) == self._view.batch_size:
            self._submit()

    def finish(self) -> None:
        """Submit the last batch and collect all outputs."""
        if self._filling:
            self._submit()
        while self._computing:
            self._collect()

    def _submit(self) -> None:
        # Bounds the batches in memory, and with them the decoding: no clip is read further while
        # its consumer waits here.
        if len(self._computing) == self._most:
            self._collect()
        owners = [(reduction, part) for reduction, part, _ in self._filling]
        pixels = [item for _, _, item in self._filling]
        self._computing.append((owners, self._pool.submit(self._compute, pixels)))
        self._filling = []

    def _compute(self, pixels: list[np.ndarray]) -> np.ndarray:
        """Return the outputs of a batch, padded to a constant size."""
        # A row then does not depend on the clips that share its last batch, and kernels are chosen
        # for one size only.
        batch = np.zeros((self._view.batch_size, *pixels[0].shape), np.uint8)
        batch[: len(pixels)] = pixels
        with self._watch.timing(FORWARD):
            outputs: np.ndarray = self._view.network(torch.from_numpy(batch)).numpy()
        return outputs[: len(pixels)]

    def _collect(self) -> None:
        owners, outputs = self._computing.popleft()
        for (reduction, part), output in zip(owners, outputs.result(), strict=True):
            reduction.add(part, output)


def clip_rows(
    paths: Sequence[Path],
    requested: Sequence[frozenset[int]],
    views: Sequence[View],
    threads: int,
    readers: int,
    watch: Stopwatch,
) -> Iterator[tuple[int, dict[int, RowBlock]]]:
    """Yield the rows of clips in order, one block per requested view, each with a single row.

    `requested` has the indices of the views to compute for each clip; an empty set skips it. A row
    is NaN, with a status and a reason, if its clip failed.
    """
    numbers = [number for number, indices in enumerate(requested) if indices]
    with (
        one_core_each(),
        ThreadPoolExecutor(readers, thread_name_prefix="read") as reading,
        ThreadPoolExecutor(threads, thread_name_prefix="compute") as computing,
        ending_at_once(reading, computing),
    ):

        def read(number: int) -> _Reading:
            return _Reading(paths[number], requested[number], views, reading, watch)

        batches = [_Batches(v, computing, threads + _BATCHES_AHEAD, watch) for v in views]
        # Rows leave in the order of the clips: a writer appends, and a run that is killed resumes
        # after the last row. A clip waits here for its last frames, which share a batch with pieces
        # of later clips, as reduced outputs, not frames: a few rows, whatever the length of a clip.
        waiting: deque[tuple[int, _Reading, dict[int, _Reduction]]] = deque()
        for number, clip in started_ahead(numbers, read, readers + 1):
            reductions = {view: _Reduction(views[view].recipe) for view in sorted(clip.requested)}
            for piece in clip:
                reductions[piece.view].expected += 1
                batches[piece.view].add(reductions[piece.view], piece)
            waiting.append((number, clip, reductions))
            # A failed clip waits for no batch: its outputs are dropped. Those behind it still wait
            # for their turn.
            while waiting and _complete(waiting[0]):
                yield _rows_of(*waiting.popleft())
        for batch in batches:
            batch.finish()
        for entry in waiting:
            yield _rows_of(*entry)


def _complete(entry: tuple[int, _Reading, dict[int, _Reduction]]) -> bool:
    _, clip, reductions = entry
    return clip.status != OK or all(j.received == j.expected for j in reductions.values())


def _rows_of(
    number: int, clip: _Reading, reductions: dict[int, _Reduction]
) -> tuple[int, dict[int, RowBlock]]:
    blocks = {}
    for view, reduction in reductions.items():
        row = reduction.row() if clip.status == OK else np.full(reduction.recipe.shape, np.nan)
        blocks[view] = RowBlock(
            row[None].astype(np.float32),
            np.array([clip.status], np.uint8),
            (clip.reason,),
            np.array([clip.crc32], np.uint32),
        )
    return number, blocks
