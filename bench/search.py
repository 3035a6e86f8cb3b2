"""Approximate index against exact search: build time, queries per second, recall@10.

Run as `OMP_NUM_THREADS=1 python -m bench.search [ROWS]`; 256 dimensions, cosine. Times are CPU
times. Synthetic rows are near 32 directions, as learnt embeddings are near few; queries are rows
with more noise. Then a file of the first 95 % of the rows is extended: 5 % are new and as many are
deleted, next to an index built from scratch. Fails if a recall is below 0.9.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.record import recorded
from pipeline.retrieval.approximate import ApproximateIndex, build_index, open_index
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.search import Gallery, nearest
from pipeline.retrieval.similarity import Vectors

DIM, INNER, QUERIES = 256, 32, 200


@recorded
def main() -> None:
    """Time both searches in one run."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((INNER, DIM), np.float32)
    meant = rng.standard_normal((rows, INNER), np.float32)
    made = meant @ directions + 1.5 * rng.standard_normal((rows, DIM), np.float32)
    asked = meant[:QUERIES] @ directions + 3 * rng.standard_normal((QUERIES, DIM), np.float32)
    gallery = Gallery("images", tuple(f"{row:08d}" for row in range(rows)), made, "cosine")
    started = time.process_time()
    index = build_index(gallery)
    print(f"{rows} rows of {DIM}: built in {time.process_time() - started:.1f} s on one core")
    found = []
    for name, search in (("exact", lambda q: nearest(gallery, q, "captions", 10)),
                         ("index", lambda q: index.nearest(q, "captions", 10))):  # fmt: skip
        search(asked[:1])
        started = time.process_time()
        found.append(search(asked).rows)
        together = QUERIES / (time.process_time() - started)
        started = time.process_time()
        for query in asked[:10]:
            search(query[None])
        alone = 10 / (time.process_time() - started)
        print(f"{name}: {together:.0f} queries/s of {QUERIES} at once, {alone:.1f} one by one")
    recall = np.mean([np.isin(a, b).mean() for a, b in zip(*found, strict=True)])
    print(f"recall@10 {recall:.3f}")
    for share in (0.5, 0.11, 0.05, 0.001):
        among = np.sort(rng.permutation(rows)[: round(share * rows)])
        started = time.process_time()
        some = index.nearest(asked, "captions", 10, among).rows
        spent = 1000 * (time.process_time() - started) / QUERIES
        started = time.process_time()
        exact = nearest(gallery, asked, "captions", 10, among=among).rows
        alone = 1000 * (time.process_time() - started) / QUERIES
        found_share = np.mean([np.isin(a, b).mean() for a, b in zip(exact, some, strict=True)])
        print(
            f"{len(among)} of the rows: recall@10 {found_share:.3f}, {spent:.1f} ms per query, "
            f"exact {alone:.1f}"
        )
    with TemporaryDirectory() as folder:
        least = min(recall, grow(Path(folder) / "e.h5", made, asked))
    if least < 0.9:
        sys.exit("the index misses too much")


def grow(path: Path, made: Vectors, asked: Vectors) -> float:
    """Print seconds and recall of an index that is built, extended, and built from scratch."""
    twentieth = len(made) // 20

    def opened(first: int, stop: int) -> float:
        ids = tuple(f"{row:08d}" for row in range(first, stop))
        captions = tuple(f"{name}#0" for name in ids[: len(asked)])
        rows = made[first:stop]
        file = Embeddings(ids, rows, captions, ids[: len(asked)], asked, "cosine", {})
        write_embeddings(path, file)
        started = time.process_time()
        index: ApproximateIndex = open_index(path, file, "images", lambda line: None)
        spent = time.process_time() - started
        gallery = Gallery.of(file, "images")
        exact = nearest(gallery, asked, "captions", 10).rows
        found = index.nearest(asked, "captions", 10).rows
        recall = float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))
        print(f"rows {first} to {stop - 1}: {spent:.1f} s, recall@10 {recall:.3f}")
        return recall

    print("made, grown, read again, made from nothing:")
    recalls = [opened(0, len(made) - twentieth)]
    recalls += [opened(twentieth, len(made)) for _ in range(2)]
    (path.parent / "e.h5.index" / "images.safetensors").unlink()
    return min([*recalls, opened(twentieth, len(made))])


if __name__ == "__main__":
    main()
