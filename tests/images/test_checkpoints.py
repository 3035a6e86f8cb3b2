"""Checkpoints of training programs: the network in them is found, and no code of theirs runs."""

import io
import json
import os
import pickle
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from pipeline.images.backbones.backbone_weights import used_tensors
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.batches import feature_header
from pipeline.images.extract import extract
from pipeline.images.networks.random_weights import seeded_state
from pipeline.images.recipes import RECIPES, resolve_recipe
from pipeline.images.tap import TappedNetwork
from pipeline.images.weights import Weights, WeightsError, load_weights
from pipeline.store.hashing import sha256_of_file
from pipeline.store.jobs.options import Compute
from pipeline.store.shards.format import ShardError
from tests.images.networks.small import use_narrow_networks
from tests.images.odd_files import photo

GRID = RECIPES["resnet152-grid"]
State = dict[str, Tensor]
HEAD = ("fc.weight", "fc.bias")


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> State:
    """Weights of a narrow ResNet with the layers of torchvision's."""
    use_narrow_networks(monkeypatch)
    return seeded_state(backbone_named("resnet152").outline(), 0, "")


def with_prefix(prefix: str, state: State) -> State:
    return {prefix + key: value for key, value in state.items()}


def headless(state: State) -> State:
    return {key: value for key, value in state.items() if key not in HEAD}


def of_ten_classes(state: State) -> State:
    return state | {"fc.weight": torch.ones(10, 256), "fc.bias": torch.ones(10)}


def other(state: State) -> State:
    return {key: value + 1 for key, value in state.items()}


def saved(content: object, folder: Path, name: str = "w.pth", **options: Any) -> Path:
    path = folder / name
    if path.suffix == ".safetensors":
        save_file(content, path)  # type: ignore[arg-type]
    else:
        torch.save(content, path, **options)
    return path


def require_equal(loaded: Weights, state: State) -> None:
    """The same tensors up to the tap; behind it those of the file, or zeros."""
    assert list(loaded.state) == list(state)
    for key, value in headless(state).items():
        assert torch.equal(loaded.state[key], value), key


def training_of_timm(state: State) -> dict[str, Any]:
    return {
        "epoch": 3, "arch": "resnet152", "state_dict": state, "state_dict_ema": other(state),
        "optimizer": {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]},
        "args": Namespace(model="resnet152", lr=0.1, out=Path("out")), "metric": torch.tensor(1.0),
    }  # fmt: skip


def training_of_lightning(state: State) -> dict[str, Any]:
    return {
        "epoch": 3, "pytorch-lightning_version": "2.5.0",
        "state_dict": with_prefix("model.", state) | {"criterion.weight": torch.ones(3)},
        "callbacks": {"ModelCheckpoint{}": {"best_model_score": torch.tensor(1.0)}},
        "hyper_parameters": {"model": Namespace(name="resnet")}, "optimizer_states": [{}],
    }  # fmt: skip


FORMS: dict[str, tuple[str, Callable[[State], object]]] = {
    "its own": ("w.pth", lambda s: s),
    "fine-tuned to ten classes": ("w.pth", of_ten_classes),
    "without its head": ("w.safetensors", headless),
    "with a head of two layers": (
        "w.pth", lambda s: headless(s) | {"fc.0.weight": torch.ones(9, 256)},
    ),
    "state_dict and module": ("w.pth", lambda s: {"state_dict": with_prefix("module.", s)}),
    "model": ("w.pth", lambda s: {"epoch": 1, "model": s}),
    "compiled": ("w.pth", lambda s: with_prefix("module._orig_mod.", s)),
    "a backbone among others": (
        "w.pth",
        lambda s: with_prefix("net.backbone.body.", s) | {"net.neck.weight": torch.ones(2)},
    ),
    "timm's training": ("w.pth.tar", training_of_timm),
    "Lightning's training": ("w.ckpt", training_of_lightning),
    "an average alone": ("w.pth", lambda s: {"model_ema": s}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "zipped"),
    # Tensors and other objects are read from the old kind of file; what is found there is the same.
    [*((form, True) for form in FORMS), ("compiled", False), ("timm's training", False)],
)
def test_forms_of_checkpoints(form: str, zipped: bool, state: State, tmp_path: Path) -> None:
    name, changed = FORMS[form]
    path = saved(changed(state), tmp_path, name, _use_new_zipfile_serialization=zipped)
    loaded = load_weights(GRID, str(path))
    assert (loaded.name, loaded.sha256) == (f"file:{name}", sha256_of_file(path))
    assert loaded.recipe_fields == {}
    require_equal(loaded, state)


class Harmful:
    """Unpickled as usual, it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return io.open, (str(self.path), "w")


class HarmfulState(Harmful):
    """As `Harmful`, by a state that is set, and with items."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), {"x": Harmful(self.path)}, iter([1]), iter([("x", Harmful(self.path))])


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kind", [Harmful, HarmfulState])
def test_code_of_a_file_does_not_run(
    kind: type[Harmful], zipped: bool, protocol: int, state: State, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    pickle.loads(pickle.dumps(Harmful(made))).close()
    assert made.exists()  # as it would without care
    made.unlink()
    path = saved(
        {"state_dict": state, "args": kind(made), os.sep: [Namespace(x=Harmful(made))]},
        tmp_path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol,
    )  # fmt: skip
    require_equal(load_weights(GRID, str(path)), state)
    torch.save({"state_dict": {key: Harmful(made) for key in state}}, path)
    with pytest.raises(WeightsError, match="not a plain state dict"):
        load_weights(GRID, str(path))
    assert not made.exists()


AMBIGUOUS: list[Callable[[State], Mapping[str, Any]]] = [
    lambda s: with_prefix("student.", s) | with_prefix("teacher.", other(s)),
    lambda s: {"state_dict": with_prefix("student.", s) | with_prefix("teacher.", other(s))},
    lambda s: {
        "student": with_prefix("module.backbone.", s), "teacher": with_prefix("backbone.", other(s))
    },
]  # fmt: skip


@pytest.mark.parametrize("changed", AMBIGUOUS)
def test_two_networks_that_fit_are_named(
    changed: Callable[[State], Mapping[str, Any]], state: State, tmp_path: Path
) -> None:
    path = str(saved(changed(state), tmp_path))
    with pytest.raises(
        WeightsError, match=r"'.*student.*' and '.*teacher.*'; name one .*weights_prefix=.*teach"
    ):
        load_weights(GRID, path)
    with pytest.raises(WeightsError, match=r"'.*student.*' and '.*teacher.*'; name one"):
        load_weights(GRID, path, "nobody")
    student, teacher = (load_weights(GRID, path, name) for name in ("student", "teacher."))
    require_equal(student, state)
    require_equal(teacher, other(state))
    assert student.sha256 == teacher.sha256 == sha256_of_file(Path(path))
    hashes = {feature_header(GRID, each, "").recipe_hash for each in (student, teacher)}
    assert len(hashes) == 2


def test_an_average_is_taken_if_it_is_named(state: State, tmp_path: Path) -> None:
    path = str(saved(training_of_timm(state), tmp_path))
    usual, average = load_weights(GRID, path), load_weights(GRID, path, "state_dict_ema")
    require_equal(average, other(state))
    assert (usual.prefix, average.prefix) == ("", "state_dict_ema.")
    assert "under 'state_dict.'; weights_prefix chooses state_dict_ema." in usual.remark
    # What would be taken without it is the same features.
    assert load_weights(GRID, path, "state_dict").recipe_fields == {}
    for rest in ({"ema": other(state)}, {"state_dict": state, "model": other(state)}):
        path = str(saved({"model": state} | rest, tmp_path))
        require_equal(load_weights(GRID, path), state)
    flat = with_prefix("model.", state) | with_prefix("ema.", other(state))
    with pytest.raises(WeightsError, match=r"under 'model\.' and 'ema\.'; name one"):
        load_weights(GRID, str(saved(flat, tmp_path)))


def test_a_prefix_needs_a_file(state: State) -> None:
    for source in ("imagenet", "random:0"):
        with pytest.raises(WeightsError, match="reads no part of a file"):
            load_weights(GRID, source, "teacher")


def test_features_of_another_part_are_not_mixed(state: State, tmp_path: Path) -> None:
    photo(0, 40, 30).save(tmp_path / "a.png")
    path, out = saved(AMBIGUOUS[0](state), tmp_path), tmp_path / "out"

    def extracted(prefix: str) -> dict[str, Any]:
        compute = Compute(weights=path, weights_prefix=prefix)
        index = extract([tmp_path / "a.png"], out, recipe=GRID.name, compute=compute)
        return index.header.recipe

    assert extracted("teacher")["weights_prefix"] == "teacher."
    with pytest.raises(ShardError, match=r"weights_prefix 'teacher\.' \(requested: 'student\.'"):
        extracted("student")


def test_the_message_says_all_that_is_wrong(state: State, tmp_path: Path) -> None:
    wrong = {f"net.{key}": value for key, value in list(state.items())[6:]}
    wrong["net.layer1.0.conv1.weight"] = torch.ones(1)
    wrong |= {f"net.layer1.9.{k}": torch.ones(1) for k in range(7)}
    with pytest.raises(WeightsError) as raised:
        load_weights(GRID, str(saved(wrong, tmp_path)))
    first = ", ".join(list(state)[:5])
    assert f"does not fit resnet152: 5 missing: {first}; " in str(raised.value)
    extra = ", ".join(f"layer1.9.{k}" for k in range(5))
    assert f"; 7 not in the network: {extra}, ...; 1 of another shape: " in str(raised.value)
    assert "layer1.0.conv1.weight (1,), expected (8, 64, 1, 1)" in str(raised.value)
    assert f"; all {len(wrong)} names in the file begin with 'net.'; pass" in str(raised.value)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_folders(name: str, state: State, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"has neither model\.safetensors nor pytorch_"):
        load_weights(GRID, str(tmp_path))
    parts, index = {}, tmp_path / f"{name}.index.json"
    for number in range(2):
        parts[f"{number}-{name}"] = dict(list(state.items())[number::2])
    shards = {key: shard for shard, part in parts.items() for key in part}
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    with pytest.raises(WeightsError, match="does not index the shards"):
        load_weights(GRID, str(tmp_path))
    for shard, part in parts.items():
        saved(part, tmp_path, shard)
    loaded = load_weights(GRID, str(tmp_path))
    require_equal(loaded, state)
    assert loaded.name == f"file:{tmp_path.name}"
    (tmp_path / f"1-{name}").write_bytes((tmp_path / f"0-{name}").read_bytes())
    with pytest.raises(WeightsError, match="missing"):
        load_weights(GRID, str(tmp_path))
    path = saved(state, tmp_path, name)  # before an index
    whole = load_weights(GRID, str(tmp_path))
    require_equal(whole, state)
    assert whole.sha256 == sha256_of_file(path) != loaded.sha256


def test_a_model_that_timm_saved_for_the_hub(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", reason="needs the extra [timm]")
    net = timm.create_model("test_vit", num_classes=7)
    timm.models.save_for_hf(net, tmp_path, safe_serialization=True)
    loaded = load_weights(resolve_recipe("timm:test_vit"), str(tmp_path))
    for key, value in loaded.state.items():
        assert torch.equal(value, net.state_dict()[key]), key


TAPS = ("resnet152-grid", "vgg19-fc7", "googlenet-pool", "efficientnet-lite0-grid")
TIMM_TAPS = ("timm:test_vit@blocks.2", "timm:test_vit-pool", "timm:test_convnext-grid")


@pytest.mark.parametrize("name", [*TAPS, *TIMM_TAPS])
def test_used_tensors_are_those_with_a_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in TIMM_TAPS:
        pytest.importorskip("timm", reason="needs the extra [timm]")
    use_narrow_networks(monkeypatch)
    recipe = resolve_recipe(name)
    backbone, shape = backbone_named(recipe.backbone), (3, recipe.crop.size, recipe.crop.size)
    used = {*used_tensors(backbone, [recipe], shape)}
    net = backbone.build().eval()
    parameters = dict(net.named_parameters())
    statistics = {k for k in net.state_dict() if k.rpartition(".")[2].startswith("running_")}
    TappedNetwork(net, backbone, recipe)(torch.rand(1, *shape)).sum().backward()
    assert used & parameters.keys() == {k for k, p in parameters.items() if p.grad is not None}
    # Statistics of the norms that are used, and no counters.
    norms = {k.rpartition(".")[0] for k in used if k in parameters}
    assert used - parameters.keys() == {k for k in statistics if k.rpartition(".")[0] in norms}
