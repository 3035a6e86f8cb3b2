"""Precision of one-word queries: each query is a noun of the captions of a split.

    python -m bench.one_word NAME ... --dataset DIR [--split dev] [--words 50]

The queries are the nouns in the captions of most images, but of at most a fifth of all images. An
image is relevant if one of its captions contains the noun. Prints the mean precision at 10 of each
experiment, with the 95 % interval over nouns, and that of a random order. Qian & Lamberti 2018 show
such queries in figures 4 and 5, without a score.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

import pipeline
from pipeline.text.taggers import DEFAULT_TAGGER, tagger_called
from pipeline.text.tokenizers.tokenizer import tokenizer_called

TOP = 10
DRAWS = 10_000


def nouns_of(captions: tuple[str, ...]) -> set[str]:
    """Return the lower-case nouns of the captions of an image."""
    tokenizer, tagger = tokenizer_called("treebank"), tagger_called(DEFAULT_TAGGER)
    found = set()
    for caption in captions:
        words = tokenizer.tokenize(caption.lower())
        tags = tagger.tag(words) if words else []
        found |= {w for w, tag in zip(words, tags, strict=True) if tag in ("NN", "NNS")}
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--words", type=int, default=50)
    asked = parser.parse_args()
    entries = [e for e in pipeline.read_manifest(asked.dataset) if e.split == asked.split]
    nouns = {entry.id: nouns_of(entry.captions) for entry in entries}
    counts = Counter(noun for of_image in nouns.values() for noun in of_image)
    few = [(noun, n) for noun, n in counts.most_common() if n <= len(entries) / 5]
    queries = dict(few[: asked.words])
    chance = 100 * np.mean([n / len(entries) for n in queries.values()])
    print(f"{len(queries)} nouns: {', '.join(queries)}")
    print("| experiment | precision at 10 | 95 % |\n| --- | ---: | --- |")
    rng = np.random.default_rng(0)
    draws = rng.integers(len(queries), size=(DRAWS, len(queries)))
    for name in asked.names:
        searcher = pipeline.open_searcher(name, asked.dataset, split=asked.split)
        hits = searcher.by_sentences([*queries], top=TOP)
        right = [
            [noun in nouns[hit.id] for hit in of] for noun, of in zip(queries, hits, strict=True)
        ]
        precision = 100 * np.mean(right, axis=1)
        low, high = np.percentile(precision[draws].mean(axis=1), (2.5, 97.5))
        print(f"| {name} | {precision.mean():.1f} | {low:.1f} to {high:.1f} |")
    print(f"| a random order | {chance:.1f} | |")


if __name__ == "__main__":
    main()
