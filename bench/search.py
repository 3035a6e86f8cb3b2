"""The approximate index beside the exact search: seconds to build, queries a second, recall@10.

Run as `OMP_NUM_THREADS=1 python -m bench.search [ROWS]`; 256 dimensions, cosine. Seconds are those
of the processor. Made rows lie near 32 directions, as learnt embeddings lie near few; queries are
rows with more noise. Fails if recall is below 0.9.
"""

import sys
import time

import numpy as np

from pipeline.retrieval.approximate import build_index
from pipeline.retrieval.search import Gallery, nearest

DIM, INNER, QUERIES = 256, 32, 200


def main() -> None:
    """Time both in one run."""
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
    if recall < 0.9:
        sys.exit("the index misses too much")


if __name__ == "__main__":
    main()
