"""Comparison of two localization files: metrics of the same phrases in the same images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipeline.regions import RegionError
from pipeline.regions.localization.evaluate_localization import COLUMNS, right_queries
from pipeline.regions.localization.localized import Localized, read_localized
from pipeline.regions.localization.measures import by_head, rank
from pipeline.store.errors import UnknownName
from pipeline.store.wording import did_you_mean
from pipeline.studies.claims.drawn_precision import MeanAveragePrecision
from pipeline.studies.significance.paired import Statistic, mean_of

Entry = tuple[str, bytes]  # a name with its value
MEASURES = {
    column.name: replace(column, heading=f"phrases {column.title}")
    if column.name.startswith("phrase")
    else column
    for column in COLUMNS
    if column.name != "bound"
}
"""Metrics for comparing two localization files."""
DEFAULT_MEASURES = (
    "phrase_to_region_r1", "phrase_to_region_r10", "phrase_to_region_map", "pointing_game"
)  # fmt: skip


@dataclass(frozen=True)
class LocalizedPhrases:
    """Localized phrases of one system, an `Outputs`."""

    file: Path
    inputs: Mapping[str, Sequence[Entry]]  # images, phrases, true boxes and proposals, by name
    figures: Mapping[str, Statistic]  # metrics of `MEASURES` by name, over the images with phrases

    def require_same(self, other: "LocalizedPhrases") -> None:
        """Raise unless images, phrases, true boxes and proposals equal those of another file."""
        for what, ours in self.inputs.items():
            if ours != (theirs := other.inputs[what]):
                raise RegionError(
                    f"{self.file} has other {what} than {other.file}, "
                    f"{_first_apart(ours, theirs)}; a comparison needs the same images, phrases, "
                    "true boxes and proposals: localize the same split with the same method"
                )

    def parts(self, measure: str) -> list[Statistic]:
        """Return the single part of a metric."""
        if measure not in self.figures:
            raise UnknownName(
                f"localization files have no figure {measure!r}; {did_you_mean(measure, MEASURES)}"
            )
        return [self.figures[measure]]


def read_phrases_found(file: str | Path) -> LocalizedPhrases:
    """Load a localization file for a comparison, and rank its proposals."""
    localized = read_localized(file)
    if not localized.query_ids:
        raise RegionError(f"{file} has no query: no phrase of its images has a box")
    ranked = rank(localized, by_head(localized))
    photos, rows = np.unique(localized.query_image, return_inverse=True)
    right = {name: of for name, of in right_queries(ranked).items() if name in MEASURES}
    per_cent = {name: np.where(of, 100.0, 0.0) for name, of in right.items()}
    return LocalizedPhrases(
        Path(file),
        {
            "photos": [(image, b"") for image in localized.image_ids],
            "phrases": _texts(localized),
            "true boxes": _truths(localized),
            "proposals": _proposals(localized),
        },
        {
            **{name: mean_of(of, rows, len(photos)) for name, of in per_cent.items()},
            "phrase_to_region_map": MeanAveragePrecision.of(localized),
        },
    )


def _texts(localized: Localized) -> list[Entry]:
    texts = (localized.phrase_texts[phrase].encode() for phrase in localized.query_phrase.tolist())
    return list(zip(localized.query_ids, texts, strict=True))


def _truths(localized: Localized) -> list[Entry]:
    return [(name, localized.truth_of(at).tobytes()) for at, name in enumerate(localized.query_ids)]


def _proposals(localized: Localized) -> list[Entry]:
    boxes = (localized.boxes[localized.regions_of(at)] for at in range(len(localized.image_ids)))
    return [(name, of.tobytes()) for name, of in zip(localized.image_ids, boxes, strict=True)]


def _first_apart(ours: Sequence[Entry], theirs: Sequence[Entry]) -> str:
    for (one, here), (two, there) in zip(ours, theirs, strict=False):
        if one != two:
            return f"first {one!r} and {two!r}"
        if here != there:
            return f"first of {one!r}"
    return f"{len(ours)} and {len(theirs)}"
