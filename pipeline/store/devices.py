"""Torch devices, precisions and dtypes by name, and one core per thread."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.store.errors import PipelineError, UnknownName
from pipeline.store.progress import Monitor
from pipeline.store.wording import did_you_mean

if TYPE_CHECKING:
    import torch
    from threadpoolctl import ThreadpoolController

AUTO = "auto"
"""The best device of the machine that computes: "cuda", "mps" or "cpu".

As a precision, the fastest of the device: "bf16" where `fast_bf16`, otherwise "float32".
"""
PRECISIONS = ("float32", "tf32", "bf16", "fp16")
"""Precisions of a network's products."""
DTYPES = ("float32", "float16")
"""Dtypes of stored rows."""

# Device files of the drivers of NVIDIA, WSL and AMD on Linux. Without any of them there is no GPU,
# and the import of torch, about a second, is saved.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


class DeviceError(PipelineError):
    """A device is unknown or not available."""


def named_device(name: str, *, float64: bool = False) -> str:
    """Return a device name; for `AUTO`, the best device of this machine ("mps" lacks `float64`)."""
    if name != AUTO:
        return name
    if sys.platform == "linux" and not any(Path(driver).exists() for driver in _DRIVERS):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() and not float64 else "cpu"


def device_type(name: str) -> str:
    """Return the device type, "cuda" for "cuda:1"; for `AUTO`, that of the best device."""
    return named_device(name).partition(":")[0]


def choose_device(name: str, monitor: Monitor, *, float64: bool = False) -> str:
    """Return the device name of `named_device`, and log the choice unless it is the CPU."""
    chosen = named_device(name, float64=float64)
    if name == AUTO and chosen != "cpu":
        import torch

        model = f" ({torch.cuda.get_device_name()})" if chosen == "cuda" else ""
        monitor.log(f"device: {chosen}{model}; `device=cpu` computes on the processor")
    return chosen


def fast_bf16(device: str) -> bool:
    """Return whether a device multiplies bfloat16 faster than float32."""
    # CUDA needs compute capability 8.0, a processor AMX or AVX-512 BF16: without them bfloat16 is
    # emulated, at a fraction of the speed.
    kind = device_type(device)
    if kind not in ("cpu", "cuda"):
        return False
    import torch

    if kind == "cuda":
        return torch.cuda.get_device_capability(named_device(device)) >= (8, 0)
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def require_fast_bf16(device: str) -> None:
    """Raise unless a device multiplies bfloat16 faster than float32."""
    if not fast_bf16(device):
        raise DeviceError(
            f"precision 'bf16': device {device!r} has no fast products of bfloat16; they need a "
            "processor with AMX or AVX-512 BF16, or a CUDA device of compute capability 8.0 or "
            f"more. Use precision 'float32', or {AUTO!r}, which is bf16 where that is fast"
        )


def choose_precision(name: str, device: str, monitor: Monitor) -> str:
    """Resolve `AUTO` to the fastest precision of a device, which is logged; return other names."""
    if name != AUTO:
        return name
    chosen = "bf16" if fast_bf16(device) else "float32"
    monitor.log(f"precision: {chosen} on {named_device(device)}")
    return chosen


def usable_device(name: str) -> "torch.device":
    """Return the torch device of a name such as "cuda:1" or `AUTO`; raise if it is not usable.

    Its products of float32 are not rounded to TF32.
    """
    import torch

    try:
        device = torch.device(named_device(name))
    except RuntimeError as error:
        hint = did_you_mean(name, (AUTO, "cpu", "cuda", "mps"))
        raise UnknownName(f"no device is called {name!r}; {hint}") from error
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise DeviceError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}); CUDA devices "
            f"found: {torch.cuda.device_count()}; try device 'cpu'"
        ) from error
    if device.type == "cuda":
        # By default torch rounds the factors of cuDNN's convolutions and recurrent networks.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return device


@contextmanager
def one_core_each() -> Iterator[None]:
    """Limit torch and BLAS to one core per calling thread."""
    # Sums over several cores depend on their number; with one core, results do not. The load of
    # other programs also stalls one thread at most, not all that wait at the end of a product.
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _thread_pools(len(sys.modules)).limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(1)
def _thread_pools(modules: int) -> "ThreadpoolController":
    """Return the thread pools of this process, which imports add to."""
    from threadpoolctl import ThreadpoolController

    # It looks through all libraries of the process, which takes longer than to encode a sentence.
    return ThreadpoolController()
