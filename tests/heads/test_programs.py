"""Programs of heads: equal to the head's modules, also in padding, for any number of rows."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions
from pipeline.heads.programs import SUFFIXES, largest_difference, run_program, write_program
from pipeline.heads.training.trainer import NetworkHead
from pipeline.testing import HeadCase
from tests.heads.factories import all_of
from tests.heads.test_conformance import KINDS, STATES, VARIANTS

SMALL = {**STATES, "dim": 8, "word_dim": 5, "image_scaling": "given"}


def _states(**settings: object) -> HeadCase:
    return replace(KINDS["vse"], settings={**SMALL, **settings})


# Both sides of every head, then what is another module: a variant with another loss is none.
CASES: dict[tuple[str, str], HeadCase] = {
    **{(name, side): case for name, case in KINDS.items() for side in ("image", "caption")},
    ("rooted cca", "image"): HeadCase("cca", {"image_scaling": "rooted"}),
    ("centred ridge", "image"): HeadCase("ridge", {"image_scaling": "centred"}),
    **{("gru nodes", side): VARIANTS["gru nodes"] for side in ("image", "caption")},
    ("mean", "caption"): _states(cell="gru", layers=2, bidirectional=True, pooling="mean"),
    ("max", "caption"): _states(cell="lstm", pooling="max"),
    ("whole peepholes", "caption"): _states(cell="whole_peephole_lstm"),
    ("sum", "caption"): _states(cell="none", word_dim=8, absolute=True),
}
# One of each kind of layer, in a format: it takes seconds, and all others are slow tests. An ONNX
# file is written from the program of torch, which is not run alone there.
QUICK = {
    ("cca", "image"): ["torch", "onnx"],
    ("ridge", "caption"): ["torch"],
    ("two-branch", "image"): ["torch"],
    ("vse", "caption"): ["torch"],
    ("scan", "caption"): ["onnx"],
    ("relational", "caption"): ["torch"],
}
OF_ALL = [
    pytest.param(*key, form, id=" ".join((*key, form)), marks=() if quick else pytest.mark.slow)
    for key in CASES
    for form in SUFFIXES
    if (quick := form in QUICK.get(key, [])) or form == "onnx"
]


def module_of(case: HeadCase, side: str) -> nn.Module:
    """Return a side of a head with random weights, or fitted if it is a closed form."""
    head = case.head()
    if isinstance(head, NetworkHead):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            return head.task.build(None).eval()[side]
    head.fit(case.pairs(20), case.pairs(9, seed=1), FitOptions(0))
    return head.towers()[side]  # type: ignore[attr-defined]


@pytest.fixture(params=SUFFIXES)
def form(request: pytest.FixtureRequest) -> str:
    """A format whose packages are installed."""
    if request.param == "onnx":
        pytest.importorskip("onnxscript", reason="onnxscript is not installed: extra onnx")
    return str(request.param)


@pytest.mark.parametrize(("name", "side", "form"), OF_ALL, indirect=["form"])
def test_a_program_has_the_rows_of_its_module(
    name: str, side: str, form: str, tmp_path: Path
) -> None:
    case = CASES[name, side]
    module, pairs = module_of(case, side), case.pairs(4, seed=4)
    rows = all_of(pairs.images if side == "image" else pairs.captions)
    rows = np.concatenate([rows, np.zeros_like(rows[:1])])  # a caption without words, too
    path = tmp_path / os.fsdecode(b"caf\xe9" + SUFFIXES[form].encode())
    write_program(module, rows, "features", path)
    with torch.no_grad():
        expected = module(torch.from_numpy(rows)).numpy()
    assert largest_difference(run_program(path, rows), expected) < 2e-6
    assert largest_difference(run_program(path, rows[-2:-1]), expected[-2:-1]) < 2e-6
    assert str(Path(__file__).parents[2]).encode() not in path.read_bytes()


def test_equal_modules_have_equal_bytes(form: str, tmp_path: Path) -> None:
    case = KINDS["two-branch"]
    rows = all_of(case.pairs(2).captions)
    paths = [tmp_path / f"{name}{SUFFIXES[form]}" for name in "ab"]
    for path in paths:
        write_program(module_of(case, "caption"), rows, "features", path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


class Tapped(nn.Module):
    """A network of which a row is the output of its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 2), nn.Linear(2, 1000)

    def forward(self, x: Tensor) -> Tensor:
        rows: Tensor = self.first(x)
        self.second(rows.clone()).relu_()
        return rows


class Counting(nn.Module):
    """A module whose result depends on values in Python."""

    def forward(self, x: Tensor) -> Tensor:
        return x * len([value for value in x[:, 0].tolist() if value > 0])


def test_weights_without_an_effect_are_left_out(tmp_path: Path) -> None:
    rows = np.ones((4, 3), np.float32)
    write_program(net := Tapped(), rows, "features", tmp_path / "tapped.pt2")
    names = [*torch.export.load(tmp_path / "tapped.pt2").state_dict]
    assert names == ["first.weight", "first.bias"]
    found = run_program(tmp_path / "tapped.pt2", rows)
    np.testing.assert_array_equal(found, net(torch.from_numpy(rows)).detach().numpy())


def test_a_module_that_cannot_be_exported_is_named(tmp_path: Path) -> None:
    rows = np.ones((4, 3), np.float32)
    with pytest.raises(HeadError, match=r"image\.pt2 cannot be exported \(.*`pipeline\.load_head`"):
        write_program(Counting(), rows, "features", tmp_path / "image.pt2")
    assert [*tmp_path.iterdir()] == []


def test_differences_are_relative_to_each_row() -> None:
    expected = np.array([[3.0, 4.0], [300.0, 400.0], [0.0, 0.0]], np.float32)
    assert largest_difference(expected, expected) == 0
    for row, change, difference in ((0, 0.5, 0.1), (1, 5.0, 0.01), (2, 0.25, 0.25)):
        found = expected.copy()
        found[row, 0] += change
        assert largest_difference(found, expected) == pytest.approx(difference)
