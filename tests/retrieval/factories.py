"""Made embeddings for tests of ranks: uneven captions, shuffled rows, many ties if asked."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.similarity import CROSS_ATTENTIONS

SETS = list(CROSS_ATTENTIONS)


def made(counts: list[int], similarity: str, seed: int = 0, integers: bool = False) -> Embeddings:
    """Images with `counts` captions, rows shuffled; integer coordinates give many ties."""
    rng = np.random.default_rng(seed)
    images = [f"im{k}" for k in rng.permutation(len(counts))]
    captions = [(f"{i}#{k}", i) for i, n in zip(images, counts, strict=True) for k in range(n)]
    captions = [captions[k] for k in rng.permutation(len(captions))]

    def points(rows: int) -> npt.NDArray[np.float32]:
        if similarity in SETS:
            parts = rng.standard_normal((rows, 4, 9)).astype(np.float32)
            parts[np.arange(4) < rng.integers(0, 4, (rows, 1))] = 0.0
            return parts
        if integers:
            return rng.integers(-1, 2, (rows, 3)).astype(np.float32)
        return rng.standard_normal((rows, 9)).astype(np.float32)

    return Embeddings(
        tuple(images),
        points(len(images)),
        tuple(c for c, _ in captions),
        tuple(i for _, i in captions),
        points(len(captions)),
        similarity,
        {},
    )


def noisy(images: int, noise: float, seed: int) -> Embeddings:
    """Two captions an image, each its image's point and noise: more noise, less recall."""
    points = np.random.default_rng(0).standard_normal((images, 8)).astype(np.float32)
    rng = np.random.default_rng(seed)
    captions = np.repeat(points, 2, axis=0)
    captions = captions + noise * rng.standard_normal(captions.shape).astype(np.float32)
    ids = tuple(f"im{k}" for k in range(images))
    owners = tuple(i for i in ids for _ in range(2))
    names = tuple(f"{i}#{k % 2}" for k, i in enumerate(owners))
    return Embeddings(ids, points, names, owners, captions, "cosine", {})


def written(folder: Path, name: str, embeddings: Embeddings) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_embeddings(folder / f"{name}.h5", embeddings)
    return folder / f"{name}.h5"
