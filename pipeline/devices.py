"""The torch device that a name stands for, if it is there."""

import torch

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
