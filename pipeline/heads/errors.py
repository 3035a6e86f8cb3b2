"""What a head refuses."""

from pipeline.errors import PipelineError


class HeadError(PipelineError):
    """A head cannot take these inputs or settings, or its files are not what they should be."""
