"""The base of every error that a user can put right."""


class PipelineError(Exception):
    """Something that its reader can mend.

    The text is one paragraph: what was found, what was expected, where (file, line, id) and
    the remedy. Each room derives its own named errors from this class; a command prints the
    text and exits with status 1.
    """


class WrongUsage(PipelineError):
    """Arguments that contradict each other; commands end with status 2."""
