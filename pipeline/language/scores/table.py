"""All scores of a set of captions as one row of a table."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from pipeline.language import LanguageError
from pipeline.language.scores.bleu import Words, bleu
from pipeline.language.scores.cider import cider_d
from pipeline.language.scores.rouge import rouge_l
from pipeline.store.wording import counted
from pipeline.text.tokenizers.tokenizer import TOKENIZERS

TOKENIZER = TOKENIZERS["treebank"]
"""Penn Treebank words in lower case without punctuation, as in COCO's evaluation."""

COLUMNS = {
    "bleu_1": "BLEU-1",
    "bleu_2": "BLEU-2",
    "bleu_3": "BLEU-3",
    "bleu_4": "BLEU-4",
    "rouge_l": "ROUGE-L",
    "cider": "CIDEr",
    "mean_length": "words",
    "vocabulary": "vocabulary",
    "distinct": "distinct",
    "verbatim": "verbatim",
    "num_images": "images",
    "num_without_caption": "without caption",
}
"""The columns of `score` with headings."""


def score(
    captions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    training: Iterable[str] = (),
) -> dict[str, float | int]:
    """Score one caption per image against human references.

    Parameters
    ----------
    captions : mapping of str to str. Caption by image id.
    references : mapping of str to sequence of str. References by image id, at least one with a
        word; others are ignored. Images without a caption count only in `num_without_caption`.
    training : iterable of str. Training captions.

    Returns
    -------
    dict
        `bleu_1` to `bleu_4` and `rouge_l` out of 100, `cider` out of 10. Then of the captions
        `mean_length` in words, `vocabulary` (distinct words), `distinct` (distinct captions, per
        cent) and `verbatim` (per cent with the words of a training caption). Then `num_images`,
        with a caption, and `num_without_caption`.

    Raises
    ------
    LanguageError
        There is no caption, a caption of an unknown image, or an image without a reference.
    """
    words, written = split_captions(captions, references)
    learnt = {tuple(TOKENIZER.tokenize(text)) for text in training}
    own = {tuple(found) for found in words}
    return {
        **{f"bleu_{n}": 100 * value for n, value in enumerate(bleu(words, written), 1)},
        "rouge_l": 100 * fmean(rouge_l(words, written)),
        "cider": fmean(cider_d(words, written)),
        "mean_length": fmean(map(len, words)),
        "vocabulary": len(set().union(*words)),
        "distinct": 100 * len(own) / len(words),
        "verbatim": 100 * fmean(tuple(found) in learnt for found in words),
        "num_images": len(words),
        "num_without_caption": len(references) - len(words),
    }


def split_captions(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[tuple[Words, ...], tuple[tuple[Words, ...], ...]]:
    """Tokenize captions, and the non-empty references of their images.

    Returns
    -------
    captions, references
        The words of each caption, and those of each of its image's references.

    Raises
    ------
    LanguageError
        There is no caption, a caption of an unknown image, or an image without a reference.
    """
    if unknown := [image for image in captions if image not in references]:
        raise LanguageError(
            f"{len(unknown)} of {len(captions)} captions are of images without a reference, first "
            f"{unknown[:5]}; name the dataset and split of the captions"
        )
    if not captions:
        raise LanguageError("there is no caption to score")
    words = tuple(TOKENIZER.tokenize(text) for text in captions.values())
    written = tuple(
        tuple(found for text in references[image] if (found := TOKENIZER.tokenize(text)))
        for image in captions
    )
    if without := [image for image, found in zip(captions, written, strict=True) if not found]:
        raise LanguageError(
            f"{counted(len(without), 'image has', 'images have')} no reference, first {without[:5]}"
        )
    return words, written
