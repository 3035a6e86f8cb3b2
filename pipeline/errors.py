"""The base of every error that a user can put right, and how a lack of memory is told."""


class PipelineError(Exception):
    """Something that its reader can mend.

    The text is one paragraph: what was found, what was expected, where (file, line, id) and
    the remedy. Each room derives its own named errors from this class; a command prints the
    text and exits with status 1.
    """


class FileReadError(PipelineError):
    """The system, not the file, prevented reading it: permission, I/O, open files, memory."""


class UnexpectedType(PipelineError, TypeError):
    """A value of a type that a function does not accept; a `TypeError` as well."""


class WrongUsage(PipelineError):
    """Arguments that contradict each other; commands end with status 2."""


class UnknownName(WrongUsage):
    """A name that no choice has; the text has the nearest ones."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that Python, torch or CUDA had no more memory.

    A thread that cannot be started counts, and a library that cannot be mapped: both need room.
    """
    said = "out of memory", "allocate memory", "can't start new thread", "failed to map segment"
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in said)
