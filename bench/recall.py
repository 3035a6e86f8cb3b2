"""Exact ranks by id against the usual script: the full similarity matrix and an argsort.

    python -m bench.recall [IMAGES] [--device cuda]
    python -m bench.recall IMAGES --similarities scan-t2i-avg:256 order:1024

Five captions per image. The first form compares cosines of 1,024 dimensions; each program runs in a
separate process, the script always on the CPU. It prints the seconds of ranking (wall and CPU
time), the peak resident size relative to the size of the embeddings, and the ratios, and fails if
the ranks differ. The second form prints CPU microseconds per image-caption pair for each NAME:DIM,
and what matrix products alone need, in float64 as computed and in float32. Set similarities have 49
cells and 8 to 18 words.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.ranks import Ranker, Ranks, rank_both_ways
from pipeline.retrieval.similarity import SIMILARITIES

DIM, CAPTIONS = 1024, 5
CELLS, WORDS = 49, (8, 18)
WAYS = ("ours", "argsort")


def made(images: int, similarity: str = "cosine", dim: int = DIM) -> Embeddings:
    """Return random unit embeddings whose captions are near their image."""
    rng = np.random.default_rng(0)
    sets = SIMILARITIES[similarity].sets
    points = rng.standard_normal((images, CELLS, dim) if sets else (images, dim), dtype=np.float32)
    said = np.repeat(points[:, : WORDS[1]] if sets else points, CAPTIONS, axis=0)
    for row in said:
        row += 3.0 * rng.standard_normal(row.shape, dtype=np.float32)
    for rows in (points, said):
        for row in rows:
            row /= np.linalg.norm(row, axis=-1, keepdims=True)
    if sets:
        lengths = rng.integers(*WORDS, len(said), endpoint=True)
        said *= (np.arange(WORDS[1]) < lengths[:, None])[:, :, None]
    names = tuple(f"{i:06d}" for i in range(images))
    return Embeddings(
        names,
        points,
        tuple(f"{name}#{k}" for name in names for k in range(CAPTIONS)),
        tuple(name for name in names for _ in range(CAPTIONS)),
        said,
        similarity,
        {},
    )


def argsort_ranks(e: Embeddings) -> tuple[Ranks, Ranks]:
    """Rank in both directions from the full similarity matrix, with one argsort per query."""
    scores = e.image_embeddings @ e.caption_embeddings.T
    best = np.empty(len(scores), np.int64)
    for i, row in enumerate(scores):
        order = np.argsort(row)[::-1]
        best[i] = min(np.where(order == CAPTIONS * i + k)[0][0] for k in range(CAPTIONS))
    found = np.empty(scores.shape[1], np.int64)
    for j, column in enumerate(scores.T):
        found[j] = np.where(np.argsort(column)[::-1] == j // CAPTIONS)[0][0]
    return best, found


def ranker(way: str, device: str) -> Ranker:
    """Return one of `WAYS`; other devices than cpu use torch, like `pipeline evaluate`."""
    if way == "argsort":
        return argsort_ranks
    if device == "cpu":
        return rank_both_ways
    from pipeline.retrieval.ranking.on_device import rank_on

    return rank_on(device)


def run(way: str, device: str, images: int, out: Path) -> None:
    """Rank in this process, save the ranks, and print wall and CPU seconds and the peak in GB."""
    e = made(images)
    rank = ranker(way, device)
    started, busy = time.perf_counter(), time.process_time()
    ranks = rank(e)
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    # Not getrusage: after a fork that begins at the size of the parent.
    status = Path("/proc/self/status").read_text().split()
    peak = int(status[status.index("VmHWM:") + 1]) * 1024 / 1e9
    np.save(out, np.concatenate(ranks), allow_pickle=False)
    print(json.dumps({"seconds": seconds, "busy": busy, "peak": peak}))


def by_similarity(images: int, named: list[str]) -> None:
    """Print CPU microseconds per pair of each NAME:DIM, and of its products alone."""
    print("| similarity | dim | CPU us per pair | products, float64 | products, float32 |")
    print("|---|---:|---:|---:|---:|")
    for name, dim in (one.rsplit(":", 1) for one in named):
        e = made(images, name, int(dim))
        pairs = len(e.image_ids) * len(e.caption_ids)
        parts = [
            rows[(rows != 0).any(axis=-1)] for rows in (e.image_embeddings, e.caption_embeddings)
        ]
        times = [seconds_of(partial(rank_both_ways, e))]
        if name != "order":  # whose excesses are squared and summed one by one
            for dtype in (np.float64, np.float32):
                times.append(seconds_of(partial(products, *(p.astype(dtype) for p in parts))))
        cells = [f"{1e6 * seconds / pairs:.2f}" for seconds in times]
        print(f"| `{name}` | {dim} | {' | '.join([*cells, '', ''][:3])} |", flush=True)


def products(images: npt.NDArray, captions: npt.NDArray) -> None:
    """Multiply all image parts with all caption parts, in blocks."""
    for start in range(0, len(images), 8 * CELLS):
        for first in range(0, len(captions), 1024):
            images[start : start + 8 * CELLS] @ captions[first : first + 1024].T


def seconds_of(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    before = time.process_time()
    call()
    return time.process_time() - before


def main() -> None:
    """Run both ways and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("images", nargs="?", type=int, default=2000)
    parser.add_argument("--device", default="cpu", help="of ours")
    parser.add_argument(
        "--alone", nargs=2, metavar=("WAY", "FILE"), help="run one way, keep its ranks"
    )
    parser.add_argument("--similarities", nargs="+", metavar="NAME:DIM", default=[])
    arguments = parser.parse_args()
    if arguments.similarities:
        by_similarity(arguments.images, arguments.similarities)
        return
    images, device = arguments.images, arguments.device
    if arguments.alone:
        run(arguments.alone[0], device, images, Path(arguments.alone[1]))
        return
    captions = CAPTIONS * images
    size = (images + captions) * DIM * 4 / 1e9
    print(
        f"{images} images, {captions} captions, {DIM} dimensions: embeddings {size:.2f} GB; "
        f"ours on {device}"
    )
    took: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as work:
        files = {way: Path(work) / f"{way}.npy" for way in WAYS}
        for way, file in files.items():
            command = [sys.executable, "-m", "bench.recall", str(images), "--device", device]
            command += ["--alone", way, str(file)]
            ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            took[way] = json.loads(ended.stdout)
            seconds, busy, peak = took[way].values()
            print(f"{way:8} {seconds:7.2f} s, processors {busy:7.2f} s, peak {peak:.2f} GB")
        ours, theirs = (np.load(file, allow_pickle=False) for file in files.values())
    ratios = [f"{took['argsort'][k] / took['ours'][k]:.2f} x {k}" for k in took["ours"]]
    gap = np.abs(ours - theirs)
    print(f"argsort / ours: {', '.join(ratios)}")
    print(f"{np.count_nonzero(gap)} of {len(gap)} ranks differ, by at most {gap.max()}")
    # Products in float32 swap neighbours, but no more.
    if gap.max() > 5:
        sys.exit("ranks differ by more than float32 rounding explains")


if __name__ == "__main__":
    main()
