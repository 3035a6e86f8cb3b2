"""Rows of `pipeline list`, also for what families add to it."""

from collections.abc import Mapping, Sequence

Row = Mapping[str, str]


def recipe_row(name: str, of: str, shape: Sequence[int], source: str, weights: str) -> Row:
    """Return a row of `pipeline list recipes`; `of` is what the rows are features of."""
    shown = " x ".join(map(str, shape))
    return {"name": name, "of": of, "shape": shown, "source": source, "weights": weights}
