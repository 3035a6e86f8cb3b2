"""Devices by name, and the one that is chosen where none is named."""

import subprocess
import sys

import pytest
import torch

from pipeline import devices
from pipeline.cluster.place import Place
from pipeline.devices import (
    AUTO,
    DeviceError,
    choose_device,
    device_type,
    named_device,
    usable_device,
)
from pipeline.errors import UnknownName
from pipeline.jobs.options import Compute
from pipeline.progress import QUIET
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


def test_without_a_driver_torch_is_not_asked() -> None:
    program = (
        "import sys; from pipeline import devices; devices._DRIVERS = (); "
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
