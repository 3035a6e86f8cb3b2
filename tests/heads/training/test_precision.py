"""Training in bfloat16: what is computed in it, that it is recorded, and that float32 stays."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions, History
from pipeline.heads.head_types import Experiment, Finetuning, with_precision
from pipeline.heads.layers.products import products_in
from pipeline.heads.layers.recurrence import run_recurrent
from pipeline.heads.training.trainer import NetworkHead
from pipeline.store import devices
from tests.heads.factories import pairs, small_task

HEAD = Experiment("made", "two-branch", {"hidden": 8, "dim": 4, "epochs": 3, "batch_size": 20})

State = dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors without fast products of bfloat16 have slow ones."""
    monkeypatch.setattr(devices, "fast_bf16", lambda device: True)


def trained(precision: str, work: Path | None = None, epochs: int = 6) -> tuple[State, History]:
    head = NetworkHead(small_task(epochs), "small")
    options = FitOptions(0, work=work, precision=precision)
    history = head.fit(pairs(40), pairs(15, seed=1), options)
    return head.tensors(), history


def digest(tensors: State) -> str:
    return hashlib.sha256(save({n: t.clone() for n, t in tensors.items()})).hexdigest()


def test_a_layer_rounds_its_factors_and_nothing_else() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(40, 30), torch.randn(20, 40, requires_grad=True)
    with products_in("bf16"):
        found = linear(x)
        exact = x @ linear.weight.T
    assert (found.dtype, exact.dtype) == (torch.float32, torch.float32)
    assert torch.equal(exact, x @ linear.weight.T), "products of losses stay in float32"
    rounded = [t.detach().bfloat16().double() for t in (x, linear.weight, linear.bias)]
    wanted = rounded[0] @ rounded[1].T + rounded[2]
    torch.testing.assert_close(found.double(), wanted, rtol=2**-8, atol=1e-6)
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    largest = float(rounded[1].abs().sum(0).max())
    torch.testing.assert_close(
        x.grad[0].double(), rounded[1].sum(0), rtol=2**-8, atol=2**-8 * largest
    )
    assert torch.equal(linear(x), nn.functional.linear(x, linear.weight, linear.bias))


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_a_recurrent_network_differs_by_the_rounding_of_its_factors(kind: type[nn.GRU]) -> None:
    torch.manual_seed(0)
    rnn, words = kind(12, 16, bidirectional=True), torch.randn(6, 9, 12)
    sequence = pack_padded_sequence(words, torch.tensor([6, 6, 5, 4, 4, 3, 2, 2, 1]))
    gradients, last = [], []
    for precision in ("float32", "bf16"):
        rnn.zero_grad()
        with products_in(precision):
            _, ends = run_recurrent(rnn, sequence)
        ends.square().sum().backward()
        last.append(ends.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in rnn.parameters()]))  # type: ignore[union-attr]
    for exact, rounded in (last, gradients):
        assert rounded.dtype == torch.float32
        assert 1e-5 < float((rounded - exact).norm() / exact.norm()) < 0.01


def test_bf16_trains_the_same_bytes_each_time_near_those_of_float32() -> None:
    (exact, history), (rounded, other) = trained("float32"), trained("bf16")
    assert digest(rounded) == digest(trained("bf16")[0]) != digest(exact)
    assert {t.dtype for t in rounded.values()} == {t.dtype for t in exact.values()}
    for entry, near in zip(history, other, strict=True):
        assert near["loss"] == pytest.approx(entry["loss"], rel=0.02)


def test_a_checkpoint_of_another_precision_is_not_resumed(tmp_path: Path) -> None:
    def first_epoch(precision: str) -> int:
        seen: list[int] = []
        options = FitOptions(
            0, lambda done, total, failed: seen.append(done), tmp_path, precision=precision
        )
        NetworkHead(small_task(2), "small").fit(pairs(40), pairs(15, seed=1), options)
        return seen[0]

    assert [first_epoch(p) for p in ("float32", "float32", "bf16", "bf16")] == [0, 2, 0, 2]
    assert first_epoch("float32") == 0


def test_an_experiment_or_a_command_names_the_precision() -> None:
    def of(asked: str | None, **changes: object) -> tuple[str, str | None]:
        found = with_precision(replace(HEAD, **changes), asked)  # type: ignore[arg-type]
        return found.precision, found.finetuning.precision if found.finetuning else None

    tuned = Finetuning("start", precision="bf16")
    assert of(None) == ("float32", None)
    assert of(None, precision="bf16") == of("bf16") == ("bf16", None)
    assert of("float32", precision="bf16") == ("float32", None)
    assert of(None, finetuning=tuned) == ("float32", "bf16")
    assert of("float32", finetuning=tuned) == ("float32", "float32")
    assert of(None, finetuning=Finetuning("start"), precision="bf16") == ("bf16", "bf16")
    assert of("bf16", head="cca", settings={}) == ("float32", None), "solved in closed form"
    with pytest.raises(HeadError, match="no training has the precision 'fp16'"):
        of("fp16")
