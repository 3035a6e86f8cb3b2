"""Cost of smaller embeddings: quantised rows, and only the first dimensions.

    OMP_NUM_THREADS=1 python -m bench.small_embeddings stores TEST.h5 TRAIN.h5 [--rows N ...]
    python -m bench.small_embeddings dims FILE.h5 ... [--dims N ...]

`stores` searches a float32 file of `pipeline embed`, by captions for images and by images for
captions, with rows quantised by the ranges of a file of the training split. For larger galleries,
distractors are added: a random training image plus noise with the covariance of the training
images, in proportions that keep that covariance (a smoothed bootstrap, half of each). Prints the
bytes per row that the first stage reads and that are stored, CPU milliseconds per query, R@1, R@10,
and the share of the exact ten nearest that are found. Fails if int8 loses more than 0.1 points of
R@10, or binary more than 1. `dims` prints rsum and R@10 of both directions by number of dimensions.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import with_dim
from pipeline.retrieval.quantised.codes import STORES, QuantisedRows, Quantiser, quantiser_for
from pipeline.retrieval.quantised.two_stage import nearest_stored
from pipeline.retrieval.ranking.small_galleries import table_of_gallery
from pipeline.retrieval.search import Gallery, SideName, nearest
from pipeline.retrieval.similarity import Vectors, unit_rows

MOST_ALONE, MOST_QUERIES = 20, 1000
ALLOWED = {"int8": 0.1, "binary": 1.0}
BLOCK = 1 << 16


def fill(made: Vectors, rows: Vectors, rng: np.random.Generator) -> None:
    """Fill an array with synthetic unit rows, distributed like `rows`."""
    unit = unit_rows(rows)
    mean = unit.mean(axis=0)
    root = np.linalg.cholesky(np.cov(unit.T) + 1e-9 * np.eye(unit.shape[1])).astype(np.float32)
    centred, mean, share = (unit - mean).astype(np.float32), mean.astype(np.float32), 0.5**0.5
    for start in range(0, len(made), BLOCK):
        block = made[start : start + BLOCK]
        noise = rng.standard_normal(block.shape, np.float32) @ root.T
        drawn = centred[rng.integers(len(centred), size=len(block))]
        block[:] = unit_rows(mean + share * (drawn + noise))


def encoded(rows: Vectors, side: SideName, quantiser: Quantiser) -> QuantisedRows:
    """Return quantised rows, generated block by block."""
    blocks = [
        quantiser.encode(rows[start : start + BLOCK], side, "cosine")
        for start in range(0, len(rows), BLOCK)
    ]
    bits = None if blocks[0].bits is None else np.concatenate([b.bits for b in blocks])
    return QuantisedRows(np.concatenate([b.codes for b in blocks]), side, quantiser, bits)


def stores(test: Embeddings, train: Embeddings, rows: list[int]) -> list[str]:
    """Print a table, and return the formats that lose too much."""
    print(
        "| searched | store | bytes read | stored | ms alone | in batches | R@1 | R@10 | top 10 |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    rng, missed = np.random.default_rng(0), []
    sides = train.image_embeddings, train.caption_embeddings
    quantisers = {"float32, two stages": Quantiser("float32")}
    for store in STORES[1:]:
        if quantiser := quantiser_for(store, "cosine", *sides):
            quantisers[store] = quantiser
    own, captions = (
        unit_rows(side).astype(np.float32)
        for side in (test.image_embeddings, test.caption_embeddings)
    )
    image = test.image_of_caption
    for number in sorted(rows):
        searched = np.empty((max(number, len(own)), own.shape[1]), np.float32)
        searched[: len(own)] = own
        fill(searched[len(own) :], train.image_embeddings, rng)
        made = (f"distractor-{row:07d}" for row in range(len(searched) - len(own)))
        gallery = Gallery("images", (*test.image_ids, *made), searched, "cosine")
        step = 1 if number <= len(own) else -(-len(captions) // MOST_QUERIES)
        missed += _one_size(gallery, captions[::step], [[row] for row in image[::step]], quantisers)
    of_image = [np.flatnonzero(image == row).tolist() for row in range(len(own))]
    gallery = Gallery("captions", test.caption_ids, captions, "cosine")
    missed += _one_size(gallery, own, of_image, quantisers)
    return missed


def _one_size(
    gallery: Gallery,
    queries: Vectors,
    correct: Sequence[Sequence[int]],
    quantisers: dict[str, Quantiser],
) -> list[str]:
    """Print the rows of one gallery; `correct` has the correct rows of each query."""
    missed: list[str] = []
    times = max(3, min(MOST_ALONE, 1_000_000 // len(gallery.ids)))
    n, side = len(gallery.ids), gallery.side
    asking: SideName = "captions" if side == "images" else "images"
    exact, wanted = None, 0.0
    for name, quantiser in (("float32, exact", None), *quantisers.items()):
        stored: Any = gallery.rows
        if quantiser is not None:
            plain = quantiser.store == "float32"
            stored = (
                QuantisedRows(gallery.rows, side, quantiser)
                if plain
                else encoded(gallery.rows, side, quantiser)
            )
        of = replace(gallery, rows=stored)
        search = nearest if exact is None else nearest_stored
        search(of, queries[:1], asking, 10)
        started = time.process_time()
        for query in queries[:times]:
            search(of, query[None], asking, 10)
        alone = (time.process_time() - started) / times
        started = time.process_time()
        found = search(of, queries, asking, 10).rows
        together = (time.process_time() - started) / len(queries)
        right = np.array([np.isin(f, c) for f, c in zip(found, correct, strict=True)])
        r1, r10 = (100 * right[:, :k].any(axis=1).mean() for k in (1, 10))
        if exact is None:
            exact, wanted = found, r10
        same = np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)])
        bits = getattr(stored, "bits", None)
        codes = getattr(stored, "codes", stored)[0].nbytes
        scanned, in_file = (
            (codes, codes) if bits is None else (bits.shape[1], codes + bits.shape[1])
        )
        print(
            f"| {n:,} {side} | {name} | {scanned} | {in_file} | {1000 * alone:.2f} | "
            f"{1000 * together:.2f} | {r1:.2f} | {r10:.2f} | {same:.4f} |",
            flush=True,
        )
        if wanted - r10 > ALLOWED.get(name, np.inf) + 1e-9:
            missed.append(f"{name} of {n} {side} loses {wanted - r10:.2f} points of R@10")
    return missed


def dims(files: list[Path], numbers: list[int]) -> None:
    """Print rsum and R@10 of both directions for the first dimensions."""
    print("| file | " + " | ".join(map(str, numbers)) + " | all |")
    print("|---|" + "---:|" * (len(numbers) + 1))
    for file in files:
        space, cells = read_embeddings(file), []
        for number in [*numbers, space.image_embeddings.shape[1]]:
            if number > space.image_embeddings.shape[1]:
                cells.append("")
                continue
            table = table_of_gallery(with_dim(space, number), 5)
            both = (table[f"{way}_r10"] for way in ("image_to_text", "text_to_image"))
            cells.append(f"{table['rsum']:.1f} ({', '.join(f'{r:.1f}' for r in both)})")
        print(f"| {file.stem} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print one of the two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    what = parser.add_subparsers(dest="what", required=True)
    asked = what.add_parser("stores")
    asked.add_argument("test", type=Path)
    asked.add_argument("train", type=Path)
    asked.add_argument("--rows", type=int, nargs="+", default=[1000, 100_000, 1_000_000])
    asked = what.add_parser("dims")
    asked.add_argument("files", type=Path, nargs="+")
    asked.add_argument("--dims", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    options = parser.parse_args()
    if options.what == "dims":
        dims(options.files, options.dims)
        return
    if missed := stores(
        read_embeddings(options.test), read_embeddings(options.train), options.rows
    ):
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
