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
    """A failed step: its job and name, such as "train vsepp", and the reason."""

    step: str
    error: PipelineError


class StepsFailed(PipelineError):
    """Some steps failed; the others are finished. `pipeline.run` raises it as `RunFailed`."""

    def __init__(self, failures: Mapping[Path, Failure], changed: Sequence[str]) -> None:
        # By missing output: the failure of its own step, or the first one that it needs.
        self.failures, self.changed = failures, tuple(changed)
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
