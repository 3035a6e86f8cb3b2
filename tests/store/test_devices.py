"""Devices by name, and the one that is chosen where none is named."""

import subprocess
import sys

import pytest
import torch

from pipeline.store import devices
from pipeline.store.devices import (
    AUTO,
    DeviceError,
    choose_device,
    choose_precision,
    device_type,
    fast_bf16,
    named_device,
    usable_device,
)
from pipeline.store.errors import UnknownName, WrongUsage
from pipeline.store.jobs.options import Compute
from pipeline.store.progress import QUIET
from pipeline.store.workers.place import Place
from tests.project import Recorder


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A machine that has these devices next to its CPU."""
    found = request.param
    monkeypatch.setattr(devices, "_DRIVERS", ("/dev/null",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in found)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H200")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in found)


@pytest.mark.parametrize(
    ("machine", "chosen", "of_float64", "line"),
    [
        (("cuda", "mps"), "cuda", "cuda", "device: cuda (H200); `device=cpu` computes"),
        (("mps",), "mps", "cpu", "device: mps; `device=cpu` computes"),
        ((), "cpu", "cpu", None),
    ],
    indirect=["machine"],
)
def test_the_best_device_is_chosen_and_said(
    machine: None, chosen: str, of_float64: str, line: str | None
) -> None:
    record = Recorder()
    assert choose_device(AUTO, record) == named_device(AUTO) == device_type(AUTO) == chosen
    assert choose_device(AUTO, QUIET, float64=True) == of_float64
    assert [said.startswith(str(line)) for said in record.lines] == [True] * (line is not None)
    assert Compute().on(Place(workers=2), QUIET) == Compute(device=chosen)
    assert Compute().on(Place(workers=2), QUIET).gpu is (chosen == "cuda")


@pytest.mark.parametrize("machine", [("cuda",)], indirect=True)
def test_what_is_named_is_taken_and_a_scheduler_leaves_the_choice_to_its_workers(
    machine: None,
) -> None:
    record = Recorder()
    assert [choose_device(name, record) for name in ("cpu", "cuda:1")] == ["cpu", "cuda:1"]
    assert (record.lines, device_type("cuda:1")) == ([], "cuda")
    waiting = Compute().on(Place(scheduler="tcp://host:1"), record)
    assert (waiting.device, waiting.gpu, record.lines) == (AUTO, False, [])


@pytest.mark.parametrize(
    ("device", "capability", "processor", "fast"),
    [
        ("cuda:1", (8, 0), (), True),
        ("cuda", (9, 0), (), True),
        ("cuda", (7, 5), ("amx_tile",), False),
        ("cpu", (9, 0), ("amx_tile",), True),
        ("cpu", (9, 0), ("avx512_bf16",), True),
        ("cpu", (9, 0), (), False),
        ("mps", (9, 0), ("amx_tile",), False),
    ],
)
def test_the_precision_that_is_chosen_is_that_of_the_device(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    capability: tuple[int, int],
    processor: tuple[str, ...],
    fast: bool,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    for name in ("amx_tile", "avx512_bf16"):
        found = name in processor
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda found=found: found)
    record = Recorder()
    chosen = "bf16" if fast else "float32"
    assert fast_bf16(device) is fast
    assert choose_precision(AUTO, device, record) == chosen
    assert record.lines == [f"precision: {chosen} on {device}"]
    assert choose_precision("fp16", device, record) == "fp16"
    assert Compute(precision=AUTO, device=device).on(Place(), QUIET).precision == chosen
    assert len(record.lines) == 1


def test_a_scheduler_needs_a_precision_by_name() -> None:
    with pytest.raises(WrongUsage, match="compute the rows; name a precision, such as 'bf16'"):
        Compute(precision=AUTO).on(Place(scheduler="tcp://host:1"), QUIET)


def test_without_a_driver_torch_is_not_asked() -> None:
    program = (
        "import sys; from pipeline.store import devices; devices._DRIVERS = (); "
        "assert devices.named_device('auto') == 'cpu'; assert 'torch' not in sys.modules"
    )
    if sys.platform != "linux":
        pytest.skip("only Linux has these drivers' files")
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_chosen_device_can_be_used() -> None:
    assert usable_device(AUTO).type == device_type(AUTO)


def test_a_misspelt_device_is_wrong_usage() -> None:
    with pytest.raises(UnknownName, match="no device is called 'cudda'; did you mean cuda"):
        usable_device("cudda")
    with pytest.raises(DeviceError, match="cannot be used here") as caught:
        usable_device("meta")
    assert not isinstance(caught.value, UnknownName)


def test_products_of_float32_are_not_rounded_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "zeros", lambda size, device: torch.ones(size))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    usable_device("cpu")
    assert torch.backends.cudnn.allow_tf32
    usable_device("cuda")
    assert not torch.backends.cudnn.allow_tf32
