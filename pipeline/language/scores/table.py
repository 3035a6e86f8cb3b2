"""All scores of a set of captions as one row of a table, also against a dataset's known truth."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from statistics import fmean

from pipeline.datasets.image_truth import CaptionTruth
from pipeline.language import LanguageError
from pipeline.language.scores.bleu import MAX_N, Words, bleu
from pipeline.language.scores.cider import cider_d
from pipeline.language.scores.rouge import rouge_l
from pipeline.retrieval.measures import Column
from pipeline.store.wording import counted
from pipeline.text.tokenizers.tokenizer import TOKENIZERS

TOKENIZER = TOKENIZERS["treebank"]
"""Penn Treebank words in lower case without punctuation, as in COCO's evaluation."""

COLUMNS = {
    column.name: column
    for column in (
        *(Column(f"bleu_{n}", f"BLEU-{n}") for n in range(1, MAX_N + 1)),
        Column("rouge_l", "ROUGE-L"),
        Column("cider", "CIDEr", limits=(0, 10), decimals=3),
        Column("mean_length", "words", limits=(0, inf)),
        Column("vocabulary", limits=(0, inf), decimals=0),
        Column("distinct"),
        Column("verbatim"),
        Column("num_images", "images", limits=(0, inf), decimals=0),
        Column("num_without_caption", "without caption", limits=(0, inf), decimals=0),
    )
}
"""The columns of `score` by name."""


def score(
    captions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    training: Iterable[str] = (),
) -> dict[str, float | int]:
    """Score one caption per image against human references, as a row of `COLUMNS`.

    Captions and references are by image id; a reference without a word is ignored. `bleu_1` to
    `bleu_4` and `rouge_l` are out of 100, `cider` out of 10; `distinct` captions, and `verbatim`
    ones with the words of a training caption, in per cent. Images without a caption count only in
    `num_without_caption`.
    """
    words, written = split_captions(captions, references)
    learnt = {tuple(TOKENIZER.tokenize(text)) for text in training}
    distinct = {tuple(caption) for caption in words}
    return {
        **{f"bleu_{n}": 100 * value for n, value in enumerate(bleu(words, written), 1)},
        "rouge_l": 100 * fmean(rouge_l(words, written)),
        "cider": fmean(cider_d(words, written)),
        "mean_length": fmean(map(len, words)),
        "vocabulary": len(set().union(*words)),
        "distinct": 100 * len(distinct) / len(words),
        "verbatim": 100 * fmean(tuple(caption) in learnt for caption in words),
        "num_images": len(words),
        "num_without_caption": len(references) - len(words),
    }


def split_captions(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[tuple[Words, ...], tuple[tuple[Words, ...], ...]]:
    """Return the words of each caption, and those of each non-empty reference of its image."""
    if unknown := [image for image in captions if image not in references]:
        raise LanguageError(
            f"{len(unknown)} of {len(captions)} captions are of images without a reference, first "
            f"{unknown[:5]}; name the dataset and split of the captions"
        )
    if not captions:
        raise LanguageError("there is no caption to score")
    words = tuple(TOKENIZER.tokenize(text) for text in captions.values())
    written = tuple(
        tuple(tokens for text in references[image] if (tokens := TOKENIZER.tokenize(text)))
        for image in captions
    )
    if without := [image for image, texts in zip(captions, written, strict=True) if not texts]:
        raise LanguageError(
            f"{counted(len(without), 'image has', 'images have')} no reference, first {without[:5]}"
        )
    return words, written


def truth_columns(truth: CaptionTruth | None) -> dict[str, str]:
    """Return the columns of `score_truth` with headings; empty without a truth."""
    if truth is None:
        return {}
    return {
        "parsed": "parsed",
        "true": "true",
        **{f"true_{facet}": facet for facet in truth.facets},
        **{f"says_{facet}": f"says {facet}" for facet in truth.facets},
    }


def score_truth(captions: Mapping[str, str], truth: CaptionTruth) -> dict[str, float | int]:
    """Compare captions, by image id, with the known content of their images, in per cent.

    `parsed`, those that can be parsed, and `true`, entirely correct, are of all captions. For each
    facet, `true_<facet>` is the share of correct ones of the parsed captions that mention it,
    missing without any; `says_<facet>` is the share that mentions it of all parsed ones.
    """
    judged = [truth.judge(image, text) for image, text in captions.items()]
    parsed = [right for right in judged if right is not None]
    row: dict[str, float | int] = {
        "parsed": 100 * len(parsed) / len(captions),
        "true": 100 * sum(all(right.values()) for right in parsed) / len(captions),
    }
    for facet in truth.facets:
        if values := [right[facet] for right in parsed if facet in right]:
            row[f"true_{facet}"] = 100 * fmean(values)
    for facet in truth.facets:
        mentions = sum(facet in right for right in parsed)
        row[f"says_{facet}"] = 100 * mentions / len(parsed) if parsed else 0.0
    return row
