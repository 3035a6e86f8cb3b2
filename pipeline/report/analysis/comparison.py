"""Our row beside the published rows of the same system, and what they say that differs."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.report.data.published import PublishedRow, published_for, published_rows
from pipeline.retrieval.recall import DIRECTIONS

COLUMNS = (
    *(f"{d}_{m}" for d in DIRECTIONS for m in ("r1", "r5", "r10", "median_rank")),
    "rsum",
)
"""Figures that both our tables and the papers' may have."""

FACTS = ("image features", "image weights", "text features", "split and gallery", "remark")
"""What a system's figures depend on. A paper's words are no names of ours, so all is shown."""


@dataclass(frozen=True)
class System:
    """One system's figures, ours or a paper's.

    Attributes
    ----------
    heading : who says so.
    facts : a text for each of `FACTS`, "" where it is not said.
    values : a text for each of `COLUMNS`, a paper's as printed, "" where there is none.
    """

    heading: str
    facts: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """An experiment and what the papers have of its system.

    Attributes
    ----------
    systems : ours, then each published row on the same dataset, in the printed order; () if
        there is none.
    elsewhere : the datasets that the papers have it on, if they have it on others alone.
    """

    systems: tuple[System, ...]
    elsewhere: tuple[str, ...]

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Facts, then figures: a name and a text for each system; none where nobody says it."""
        named = [*zip(FACTS, zip(*(s.facts for s in self.systems), strict=True), strict=False)]
        named += zip(COLUMNS, zip(*(s.values for s in self.systems), strict=True), strict=False)
        return [(name, list(texts)) for name, texts in named if any(texts)]


def compare(
    experiment: str, dataset: str, recall: Mapping[str, float | int], columns: Mapping[str, str]
) -> Comparison:
    """Put an experiment beside its published rows.

    Parameters
    ----------
    experiment, dataset : by their names in this project.
    recall : its table.
    columns : of `pipeline.report.data.provenance.columns_of`.
    """
    here = published_for(experiment, dataset)
    if not here:
        others = (row.dataset for row in published_rows() if row.experiment == experiment)
        return Comparison((), tuple(dict.fromkeys(others)))
    gallery = (
        f"{columns.get('split', 'split not said')}: {recall['num_images']:g} images, "
        f"{recall['num_captions']:g} captions"
    )
    ours = System(
        f"ours: {experiment}",
        (
            columns.get("image features", ""),
            columns.get("image weights", ""),
            columns.get("caption features", ""),
            gallery,
            "",
        ),
        tuple(f"{recall[column]:.1f}" for column in COLUMNS),
    )
    return Comparison((ours, *map(_printed, here)), ())


def _printed(row: PublishedRow) -> System:
    quoted = f", quoting {row.quoted_from}" if row.quoted_from else ""
    return System(
        f"{row.paper}, table {row.table}: {row.system}{quoted}",
        (row.image_feature, "", row.text_feature, row.protocol, row.remark),
        tuple(row.values.get(column, "") for column in COLUMNS),
    )
