"""Annex: research code on finished outputs. No room of the core imports it."""

from collections.abc import Iterable, Sequence

from pipeline.store.errors import PipelineError


class StudyError(PipelineError):
    """Outputs that a study cannot use, or a corrupt file of a study; the text has the remedy."""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table whose first `texts` columns are aligned left, the others right."""
    ruled = "|" + "---|" * texts + "---:|" * (len(columns) - texts)
    lines = [f"| {' | '.join(columns)} |", ruled, *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
