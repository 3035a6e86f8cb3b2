"""Made embeddings for tests of ranks, and their figures by plain loops."""

from collections.abc import Container, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.similarity import CROSS_ATTENTIONS, SIMILARITIES

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


def vectors(rows: int, similarity: str, seed: int, ties: bool = False) -> npt.NDArray[np.float32]:
    """Return vectors, or sets with absent parts; ties are small integers, or repeated sets."""
    rng = np.random.default_rng(seed)
    if not SIMILARITIES[similarity].sets:
        made = rng.integers(-1, 2, (rows, 7)) if ties else rng.standard_normal((rows, 7))
        return made.astype(np.float32)
    made = rng.standard_normal((rows, 4, 7))
    made[np.arange(4) < rng.integers(0, 4, (rows, 1))] = 0.0
    if ties:
        made = made[rng.integers(0, max(1, rows // 3), rows)]
    return made.astype(np.float32)


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


def naive_table(
    e: Embeddings, images: Sequence[str], numbers: Container[int] | None = None
) -> dict[str, float]:
    """Return a gallery's figures by loops over queries; ties are in the order of the ids.

    `numbers` are those of the counted captions, the N of `<image id>#N`; None: all.
    """
    counted = [
        (row, caption, owner)
        for row, (caption, owner) in enumerate(zip(e.caption_ids, e.caption_image_ids, strict=True))
        if owner in images and (numbers is None or int(caption.partition("#")[2]) in numbers)
    ]
    named = SIMILARITIES[e.similarity]
    scores = named.between(
        named.prepare(e.image_embeddings), named.prepare(e.caption_embeddings)
    ).astype(np.float32)
    row_of = {image: row for row, image in enumerate(e.image_ids)}
    ranks: dict[str, list[int]] = {"image_to_text": [], "text_to_image": []}
    for image in images:
        to = scores[row_of[image]]
        order = [owner for *_, owner in sorted(counted, key=lambda c: (-to[c[0]], c[1]))]
        if image in order:
            ranks["image_to_text"].append(order.index(image))
    for row, _, owner in counted:
        order = sorted(images, key=lambda image: (-scores[row_of[image], row], image))
        ranks["text_to_image"].append(order.index(owner))
    table: dict[str, float] = {"rsum": 0.0}
    for direction, found in ranks.items():
        for k in (1, 5, 10):
            table[f"{direction}_r{k}"] = 100 * sum(rank < k for rank in found) / len(found)
            table["rsum"] += table[f"{direction}_r{k}"]
        table[f"{direction}_median_rank"] = float(np.floor(np.median(found)) + 1)
        table[f"{direction}_mean_rank"] = sum(found) / len(found) + 1
        inverted = sum(1 / (rank + 1) for rank in found) / len(found)
        table[f"{direction}_mean_inverted_rank"] = inverted
    owners = [owner for *_, owner in counted]
    return table | {
        "num_images": len(images),
        "num_captions": len(counted),
        "captions_per_image": max(map(owners.count, images)),
    }
