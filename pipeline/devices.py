"""Where numbers are computed: the torch device of a name, and one core for each thread."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from pipeline.errors import PipelineError


class DeviceError(PipelineError):
    """A device is unknown, or not there."""


def usable_device(name: str) -> torch.device:
    """Return the torch device of that name, such as "cpu", "cuda" or "cuda:1".

    Raises
    ------
    DeviceError
        torch does not know it, or nothing can be put there.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise DeviceError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}); CUDA devices "
            f"found: {torch.cuda.device_count()}; try device 'cpu'"
        ) from error
    return device


@contextmanager
def one_core_each() -> Iterator[None]:
    """Keep torch and BLAS to one core for each thread that calls them.

    Threads that share the work then give the same bytes whatever their number, and no other
    program's load stalls more than one of them.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)
