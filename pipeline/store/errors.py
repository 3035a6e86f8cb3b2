"""Base class of all errors that a user can fix, and detection of out-of-memory errors."""


class PipelineError(Exception):
    """An error that the user can fix.

    The text is one paragraph: what was found, what was expected, where (file, line, id) and the
    remedy. Each package derives its own named errors from this class; a command prints the text and
    exits with status 1.

    Examples
    --------
    >>> try:
    ...     pipeline.read_manifest("missing")
    ... except pipeline.PipelineError as error:
    ...     print(error)
    missing...
    """


class FileReadError(PipelineError):
    """A system error prevented reading a file: permission, I/O, open files, memory."""


class MissingPackage(PipelineError, ImportError):
    """An optional package is not installed; the text names the extra that has it."""

    def __str__(self) -> str:
        """Return the text; an `ImportError` has a copy, which `args` does not change."""
        return PipelineError.__str__(self)


class UnexpectedType(PipelineError, TypeError):
    """A value of a type that a function does not accept; a `TypeError` as well."""


class WrongUsage(PipelineError):
    """Contradictory arguments; commands exit with status 2."""


class UnknownName(WrongUsage):
    """An unknown name; the text lists the nearest ones."""


class ClusterError(PipelineError):
    """Workers are not available or fail."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that Python, torch or CUDA ran out of memory."""
    # Starting a thread, mapping a library and a layer of oneDNN need memory too.
    texts = (
        "out of memory", "allocate memory", "can't start new thread", "failed to map segment",
        "could not create a primitive",
    )  # fmt: skip
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in texts)
