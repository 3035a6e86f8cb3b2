"""Research code on finished outputs. No package of the core imports it."""

from pipeline.store.errors import PipelineError


class StudyError(PipelineError):
    """Outputs that a study cannot use, or a corrupt file of a study; the text has the remedy."""
