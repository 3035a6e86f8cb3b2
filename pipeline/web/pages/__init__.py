"""Shared style and rendering of the HTML pages of `pipeline report` and `pipeline serve`."""

Point = tuple[float, float]  # (x, y) of a chart
