"""Exact ranks by id beside the script that everybody copies: the whole matrix and an argsort.

Run as `python bench/recall.py [IMAGES]`; five captions an image, 1,024 dimensions, cosine.
Prints seconds and the ratio, and fails if the two disagree.
"""

import sys
import time

import numpy as np

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranks import image_to_text, text_to_image

DIM, CAPTIONS = 1024, 5


def made(images: int) -> Embeddings:
    """Return normalised random embeddings whose captions lie near their image."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((images, DIM)).astype(np.float32)
    said = np.repeat(points, CAPTIONS, axis=0)
    said += 3.0 * rng.standard_normal(said.shape, dtype=np.float32)
    names = tuple(f"{i:06d}" for i in range(images))
    return Embeddings(
        names,
        points / np.linalg.norm(points, axis=1, keepdims=True),
        tuple(f"{name}#{k}" for name in names for k in range(CAPTIONS)),
        tuple(name for name in names for _ in range(CAPTIONS)),
        said / np.linalg.norm(said, axis=1, keepdims=True),
        "cosine",
        {},
    )


def argsort_ranks(e: Embeddings) -> tuple[np.ndarray, np.ndarray]:
    """Rank in both directions from the whole similarity matrix, a loop and an argsort a query."""
    scores = e.image_embeddings @ e.caption_embeddings.T
    best = np.empty(len(scores), np.int64)
    for i, row in enumerate(scores):
        order = np.argsort(row)[::-1]
        best[i] = min(np.where(order == CAPTIONS * i + k)[0][0] for k in range(CAPTIONS))
    found = np.empty(scores.shape[1], np.int64)
    for j, column in enumerate(scores.T):
        found[j] = np.where(np.argsort(column)[::-1] == j // CAPTIONS)[0][0]
    return best, found


def main() -> None:
    """Time both in one run."""
    e = made(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
    started = time.perf_counter()
    ours = image_to_text(e), text_to_image(e)
    middle = time.perf_counter()
    theirs = argsort_ranks(e)
    ended = time.perf_counter()
    differ = sum(int((a != b).sum()) for a, b in zip(ours, theirs, strict=True))
    print(f"{len(e.image_ids)} images, {len(e.caption_ids)} captions, {DIM} dimensions")
    print(f"ours {middle - started:.2f} s, argsort {ended - middle:.2f} s")
    print(f"ratio {(ended - middle) / (middle - started):.2f}, {differ} ranks differ")
    if differ > len(e.caption_ids) // 1000:
        sys.exit("more ranks differ than float32 rounding explains")


if __name__ == "__main__":
    main()
