"""Seconds and peak memory of Fisher vectors and their PCA for a number of captions.

Run as `python -m bench.text_memory FILE CAPTIONS WIDTH DIM`: FILE has one caption per line, and
text before a tab is ignored; WIDTH is 50 (GloVe) or another number of dimensions (synthetic vectors
for the same words); DIM is the number of fitted components. Codebooks have 30 components. A file
with fewer captions is repeated. Rows are projected and discarded, as when they are written to
shards.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.text.encoders.fisher_vector import FisherVector
from pipeline.text.encoders.pca import Pca
from pipeline.text.fisher.codebook import fit_codebook
from pipeline.text.pca.components import fit_memory, fit_pca
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors import WordVectors, load_vectors

TOKENIZER = TOKENIZERS["treebank"]
ROWS = 2048  # captions written at once


def main(file: Path, number: int, width: int, dim: int) -> None:
    """Print the cost of each step."""
    start = time.perf_counter()
    lines = file.read_text(encoding="utf-8").splitlines()
    every = [line.rpartition("\t")[2] for line in lines]
    texts = (every * -(-number // len(every)))[:number]
    wanted = {token for text in every for token in TOKENIZER.tokenize(text)}
    vectors = load_vectors("glove-6b-50d", wanted)
    if width != 50:
        vectors = synthetic(vectors, width)
    print_step("words and vectors", start)
    start = time.perf_counter()
    codebook = fit_codebook(vectors, "hglmm", seed=0, ica=width == 50)
    print_step("codebook", start)
    encoder = FisherVector((codebook,), vectors, TOKENIZER)
    start = time.perf_counter()
    encoder.encode(texts[:1])
    print_step(f"table of {len(vectors.words)} words, stated {encoder.memory / 1e6:.0f} MB", start)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        basis = fit_pca(encoder, texts, dim, Path(work), progress=passed(start))
    stated = fit_memory(encoder.dim, dim) / 1e6
    print_step(f"PCA {encoder.dim} to {dim} on {number} captions, stated {stated:.0f} MB", start)
    reduced = Pca(encoder, basis)
    start = time.perf_counter()
    for row in range(0, number, ROWS):
        reduced.encode(texts[row : row + ROWS])
    print_step(f"{number} captions reduced; explained variance {basis.explained:.4f}", start)


def passed(start: float) -> Callable[[int, int, int], None]:
    """Return a function that prints when all captions are processed."""

    def show(done: int, total: int, failed: int) -> None:
        if done == total:
            print_step("pass over the captions", start)

    return show


def print_step(step: str, start: float) -> None:
    """Print seconds since `start`, CPU seconds and peak memory so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"{step}: {time.perf_counter() - start:.1f} s; so far {usage.ru_utime:.0f} CPU s, peak "
        f"{usage.ru_maxrss / 1e3:.0f} MB",
        flush=True,
    )


def synthetic(vectors: WordVectors, dim: int) -> WordVectors:
    """Return heavy-tailed vectors around 50 centres for the same words."""
    rng = np.random.default_rng(1)
    shape = (len(vectors.words), dim)
    centres = rng.normal(size=(50, dim))[rng.integers(0, 50, shape[0])]
    matrix = (centres + rng.laplace(size=shape)).astype(np.float32)
    return WordVectors("synthetic", vectors.words, matrix, "0" * 64)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(argument) for argument in sys.argv[2:]))
