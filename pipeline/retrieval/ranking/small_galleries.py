"""Additions to the table of a small gallery: chance levels, 95 % intervals, a warning.

The fewer images, the higher the recall by chance and the wider the interval of every figure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import CHANCE_COLUMNS, SMALL_COLUMNS
from pipeline.retrieval.ranking import bootstrap
from pipeline.retrieval.ranking.bootstrap import RankedGallery, intervals
from pipeline.retrieval.ranking.galleries import first_captions
from pipeline.retrieval.ranking.ranks import Ranker, query_rows, rank_both_ways
from pipeline.retrieval.ranking.recall import Table, chance, table_of_ranks
from pipeline.store.wording import counted

SMALL = 1000
"""Number of images below which a table has `SMALL_COLUMNS`; published galleries are larger."""

FEW = 300
"""Number of images below which a table has a warning: half the interval of `rsum` is about 20."""

FEWEST_IMAGES = 50
"""Number of images below which bootstrap intervals are too narrow; see `bench.comparing`."""

INTERVALS: dict[str, str | int | float] = {
    "method": "percentile bootstrap over images with their captions",
    "resamples": bootstrap.RESAMPLES,
    "seed": bootstrap.SEED,
    "level": bootstrap.LEVEL,
}
"""Method of the intervals, for a table's provenance."""


def is_small(gallery: Embeddings) -> bool:
    """Return whether a gallery's table has `SMALL_COLUMNS`."""
    return len(gallery.image_ids) < SMALL


def table_of_gallery(
    embeddings: Embeddings, captions_per_image: int | None = 5, rank: Ranker = rank_both_ways
) -> Table:
    """Return the recall table of one gallery; below `SMALL` images with `SMALL_COLUMNS`."""
    gallery = first_captions(embeddings, captions_per_image)
    ranks = rank(gallery)
    table = table_of_ranks(gallery, ranks)
    if is_small(gallery):
        ranked = RankedGallery(*ranks, query_rows(gallery))
        columns: Table = {**chance(gallery, with_ranks=True), **intervals([ranked])}
        table |= {name: columns[name] for name in SMALL_COLUMNS}
    return table


def chance_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float | int | str]]:
    """Return one row for each distinct chance level of the rows of a joint table."""
    first: dict[tuple[float, ...], str] = {}
    for row in rows:
        if "rsum_chance" in row:
            first.setdefault(tuple(row[name] for name in CHANCE_COLUMNS), row["experiment"])
    names = [name.removesuffix("_chance") for name in CHANCE_COLUMNS]
    return [
        {
            "experiment": "chance" if len(first) == 1 else f"chance ({experiment})",
            **dict(zip(names, values, strict=True)),
        }
        for values, experiment in first.items()
    ]


def warning_of(tables: Sequence[Mapping[str, Any]]) -> str:
    """Return the warning about tables of few images, or ""."""
    few = [t for t in tables if t["num_images"] < FEW and "rsum_chance" in t]
    if not few:
        return ""
    least = min(few, key=lambda table: (table["num_images"], -table["rsum_chance"]))
    margin = max((t["rsum_high"] - t["rsum_low"]) / 2 for t in few)
    number = int(least["num_images"])
    images = counted(number, "test image")
    if number < FEWEST_IMAGES:
        return (
            f"Warning: {images} cannot rank systems: chance alone is rsum "
            f"{least['rsum_chance']:.1f}, other images of the same kind would move an rsum by "
            f"{margin:.1f} or more either way, and below {FEWEST_IMAGES} images even the 95 % "
            "intervals are too narrow."
        )
    return (
        f"Warning: {images} are few: other images of the same kind would move an rsum by up to "
        f"{margin:.1f} either way (95 %), and smaller differences mean nothing unless `pipeline "
        f"compare` decides them. Chance is rsum {least['rsum_chance']:.1f}."
    )
