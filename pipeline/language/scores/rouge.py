"""ROUGE-L (Lin 2004): longest common subsequence of words, as in COCO's evaluation."""

from collections.abc import Sequence

from pipeline.language.scores.bleu import Words

BETA = 1.2
"""Weight of recall relative to precision."""


def rouge_l(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
    """Return ROUGE-L, 0 to 1, of each caption; 0 without words.

    Precision and recall are each the maximum over the references, possibly of different ones.
    """
    scores = []
    for words, others in zip(captions, references, strict=True):
        common = [longest_common_subsequence(words, other) for other in others]
        precision = max(common) / len(words) if words else 0.0
        recall = max(
            c / len(other) if other else 0.0 for c, other in zip(common, others, strict=True)
        )
        both = recall + BETA**2 * precision
        scores.append((1 + BETA**2) * precision * recall / both if both else 0.0)
    return scores


def longest_common_subsequence(first: Words, second: Words) -> int:
    """Return the length of the longest common subsequence of words."""
    row = [0] * (len(second) + 1)
    for word in first:
        diagonal = 0
        for at, other in enumerate(second, 1):
            above = row[at]
            row[at] = diagonal + 1 if word == other else max(above, row[at - 1])
            diagonal = above
    return row[-1]
