"""Comparison of two files of captions: scores of the same images with the same references."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import Manifest
from pipeline.language import LanguageError
from pipeline.language.captioning.captions_file import read_captions, read_provenance
from pipeline.language.scores.bleu import MAX_N, Words, bleu_counts, bleu_of_counts
from pipeline.language.scores.cider import cider_d
from pipeline.language.scores.rouge import rouge_l
from pipeline.language.scores.table import COLUMNS, split_captions
from pipeline.store.errors import UnknownName
from pipeline.store.wording import counted, did_you_mean
from pipeline.studies.significance.paired import Doubles, Totals, mean_of

_BLEUS = {f"bleu_{n}": n for n in range(1, MAX_N + 1)}
MEASURES = {name: COLUMNS[name] for name in (*_BLEUS, "rouge_l", "cider")}
"""Metrics for comparing two files of captions, in the units of `pipeline score`."""
DEFAULT_MEASURES = ("bleu_4", "cider", "rouge_l")


@dataclass(frozen=True)
class ScoredCaptions:
    """Captions of one system, an `Outputs`."""

    file: Path
    images: tuple[str, ...]  # ids of the images with a caption, in the order of the dataset
    words: tuple[Words, ...]
    references: tuple[tuple[Words, ...], ...]

    def require_same(self, other: "ScoredCaptions") -> None:
        """Check that another file describes the same images, with the same references."""
        ours, theirs = (dict(zip(f.images, f.references, strict=True)) for f in (self, other))
        apart = [image for image in (*ours, *theirs) if ours.get(image) != theirs.get(image)]
        if apart:
            reason = "other references" if apart[0] in ours and apart[0] in theirs else "no caption"
            lacks = other if apart[0] not in theirs else self
            raise LanguageError(
                f"{self.file} and {other.file} describe {len(ours)} and {len(theirs)} images, "
                f"{counted(len(apart), 'of them differs', 'of them differ')}, first {apart[0]!r} "
                f"({reason} in {lacks.file}); describe the same split with both"
            )

    def parts(self, measure: str) -> list[Totals]:
        """Return the single part of a metric of `MEASURES`."""
        if measure not in MEASURES:
            raise UnknownName(
                f"files of captions have no figure {measure!r}; {did_you_mean(measure, MEASURES)}"
            )
        # BLEU is computed from the summed counts of the sampled images; the others are means of
        # scores of images, CIDEr with word weights from all described images.
        if measure in _BLEUS:
            at = _BLEUS[measure] - 1

            def of_totals(totals: Doubles) -> Doubles:
                return np.array([100 * bleu_of_counts(column)[at] for column in totals.T.tolist()])

            return [Totals(self._counts, of_totals)]
        if measure == "rouge_l":
            scores = 100 * np.array(rouge_l(self.words, self.references))
        else:
            scores = np.array(cider_d(self.words, self.references))
        return [mean_of(scores, np.arange(len(scores)), len(scores))]

    @cached_property
    def _counts(self) -> Doubles:
        counts = [bleu_counts(*of) for of in zip(self.words, self.references, strict=True)]
        return np.array(counts, np.float64).T


def read_scored(file: str | Path, manifest: Manifest) -> ScoredCaptions:
    """Load captions in COCO's format, with the references of their images."""
    captions = read_captions(file)
    written_for = read_provenance(file).get("dataset", manifest.name)
    if written_for != manifest.name:
        raise LanguageError(
            f"{file} describes images of the dataset {written_for!r}, but the references are those "
            f"of {manifest.name!r}; name the former"
        )
    references = {e.id: e.captions for e in manifest.entries if e.id in captions}
    if unknown := [image for image in captions if image not in references]:
        raise LanguageError(
            f"{file} describes {counted(len(unknown), 'image')} that the dataset {manifest.name!r} "
            f"lacks, first {unknown[0]!r}; name the dataset of the captions"
        )
    texts = {image: text for image in references if (text := captions[image]) is not None}
    words, written = split_captions(texts, references)
    return ScoredCaptions(Path(file), tuple(texts), words, written)
