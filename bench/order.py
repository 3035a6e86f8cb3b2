"""Whether embeddings of moving scenes encode the order of events: twins distinguished.

    python -m bench.order data/embeddings/moving-scenes/*.h5

Clips 2k and 2k + 1 of `pipeline prepare moving-scenes`, and their k-th captions, differ only in the
order of their two events. Prints for each file how often a clip is nearer to its own caption than
to the same words in the other order, and how often a caption is nearer to its own clip than to the
twin (a tie counts half), over all pairs, with a 95 % bootstrap interval over twins; and R@1. Chance
is 50 % for both.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.studies.scenes.moving.draw_clips import twin_of

RESAMPLES = 1000


def told_apart(embeddings: Embeddings) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of pairs distinguished by each clip, and by each clip's captions.

    Returns
    -------
    (clips,) and (clips,) float64, 0-1, in the order of the clips.
    """
    similarity = SIMILARITIES[embeddings.similarity]
    scores = similarity.between(
        similarity.prepare(embeddings.image_embeddings),
        similarity.prepare(embeddings.caption_embeddings),
    )
    clip = {name: row for row, name in enumerate(embeddings.image_ids)}
    caption = {name: row for row, name in enumerate(embeddings.caption_ids)}
    by_clip, by_caption = np.zeros(len(clip)), np.zeros(len(clip))
    for name, row in clip.items():
        twin = twin_of(name)
        numbers = [c.rpartition("#")[2] for c in caption if c.startswith(f"{name}#")]
        own = [caption[f"{name}#{k}"] for k in numbers]
        other = [caption[f"{twin}#{k}"] for k in numbers]
        by_clip[row] = _wins(scores[row, own], scores[row, other])
        by_caption[row] = _wins(scores[row, own], scores[clip[twin], own])
    return by_clip, by_caption


def _wins(own: np.ndarray, other: np.ndarray) -> float:
    return float(((own > other) + 0.5 * (own == other)).mean())


def _interval(shares: np.ndarray, names: Sequence[str]) -> str:
    """Return the mean in per cent with its interval; twins are drawn together."""
    pairs: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        pairs.setdefault(min(name, twin_of(name)), []).append(row)
    means = np.array([shares[rows].mean() for rows in pairs.values()])
    rng = np.random.default_rng(0)
    draws = means[rng.integers(len(means), size=(RESAMPLES, len(means)))].mean(1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{100 * shares.mean():.1f} ({100 * low:.1f}-{100 * high:.1f})"


def main() -> None:
    """Print one line per embedding file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embeddings", type=Path, nargs="+")
    print("| experiment | clip knows the order | caption knows the order | R@1 clip, caption |")
    print("|---|---:|---:|---:|")
    for file in parser.parse_args().embeddings:
        found = read_embeddings(file)
        by_clip, by_caption = (_interval(shares, found.image_ids) for shares in told_apart(found))
        table = recall_table(found)
        recalls = f"{table['image_to_text_r1']:.1f}, {table['text_to_image_r1']:.1f}"
        print(f"| {file.stem} | {by_clip} | {by_caption} | {recalls} |")


if __name__ == "__main__":
    main()
