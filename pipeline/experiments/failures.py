"""Failed steps, and their effect on other steps and on experiments."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.store.build.locking import NoRoom
from pipeline.store.errors import FileReadError, PipelineError, is_out_of_memory

_OF_THE_SYSTEM = {
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
}  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """A step that failed.

    Attributes
    ----------
    step : str. Job and name, such as "train vsepp".
    error : PipelineError. The reason.
    """

    step: str
    error: PipelineError


class StepsFailed(PipelineError):
    """Some steps failed; independent steps are finished.

    Attributes
    ----------
    failures : mapping of Path to Failure. Failed step by missing output: its own step, or the first
        one that it needs.
    made : tuple of str. The finished steps.
    """

    def __init__(self, failures: Mapping[Path, Failure], made: Sequence[str]) -> None:
        self.failures, self.made = failures, tuple(made)
        distinct = dict.fromkeys(failures.values())
        super().__init__("; ".join(f"{failure.step}: {failure.error}" for failure in distinct))


def stops_all(error: PipelineError) -> bool:
    """Return whether an error is a system error, such as a full disk, so other steps fail too."""
    return any(
        isinstance(cause, FileReadError | NoRoom)
        or is_out_of_memory(cause)
        or (isinstance(cause, OSError) and cause.errno in _OF_THE_SYSTEM)
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
