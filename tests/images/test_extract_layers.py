"""Several layers in one pass: each set has the bytes of its own run, also resumed or on workers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import Tensor, nn

import pipeline
from pipeline.images.extract import layer_folders
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Preprocessing, RecipeError, resolve_recipe
from pipeline.images.recipes.by_name import PROVIDERS, resolved_like
from pipeline.images.weights import load_weights
from pipeline.store.jobs.sink import Sink
from stages.extract import extract
from stages.list import list as list_command
from tests.images.networks.small import use_narrow_torchvision

WAY = pipeline.Preprocessing(
    pipeline.Resize("squash", 16),
    pipeline.Crop("none", 16),
    pipeline.Normalise(255.0, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
)
BLOCK = "encoder.layers.encoder_layer_"
RECIPES = ["own-pool@0", "own@1", "own-max@1", "own-pool@block.0", "own"]


class Own(nn.Sequential):
    """A network that changes an output in place, calls a layer twice, and has a block."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 6, 4, stride=4), nn.ReLU(inplace=True))
        self.block = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6))

    def forward(self, x: Tensor) -> Tensor:
        x = self[1](self[0](x))
        y: Tensor = self[1](self.block(x) + x)
        return y.mean((2, 3))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROVIDERS, "_called", {})
    layers = {"output": (6,), "0": (6, 4, 4), "1": (6, 4, 4), "block.0": (6, 4, 4)}
    pipeline.register_backbone("own", Own, WAY, layers)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(11):
        pixels = rng.integers(0, 255, (20, 30 + number, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
    (tmp_path / "photos/5.png").write_bytes(b"no image")
    return tmp_path / "photos"


def options() -> dict[str, object]:
    storage = pipeline.Storage(rows_per_shard=4)
    return {"storage": storage, "compute": pipeline.Compute(weights="random:1", batch_size=3)}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


def singly(photos: Path, out: Path) -> None:
    names = layer_folders([resolve_recipe(name) for name in RECIPES])
    for name, folder in zip(RECIPES, names, strict=True):
        pipeline.extract(photos, out / folder, recipe=name, **options())  # type: ignore[arg-type]


def test_each_set_has_the_bytes_of_its_own_run(own: None, photos: Path, tmp_path: Path) -> None:
    singly(photos, tmp_path / "alone")
    made = pipeline.extract_layers(photos, tmp_path / "together", recipes=RECIPES, **options())  # type: ignore[arg-type]
    assert list(made) == ["0-pool", "1", "1-max", "block.0-pool", "output"]
    assert {index.failed_rows for index in made.values()} == {1}
    for name in made:
        assert contents(tmp_path / "together" / name) == contents(tmp_path / "alone" / name)
    two = pipeline.Place(workers=2)
    there = pipeline.extract_layers(
        photos,
        tmp_path / "there",
        recipes=RECIPES[:2],
        place=two,
        **options(),  # type: ignore[arg-type]
    )
    for name in there:
        assert contents(tmp_path / "there" / name) == contents(tmp_path / "alone" / name)


def test_images_are_read_once_for_all_and_what_is_finished_is_kept(
    own: None, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    singly(photos, tmp_path / "alone")
    calls: list[int] = []
    every = RecipeNetwork.every

    def counted(self: RecipeNetwork, windows: Tensor) -> list[Tensor]:
        calls.append(len(self.recipes))
        return every(self, windows)

    monkeypatch.setattr(RecipeNetwork, "every", counted)
    out = tmp_path / "out"
    keep, seen = Sink.keep, []

    def interrupted(self: Sink, ids: list[str], block: object) -> None:
        seen.append(ids)
        if len(seen) > 6:
            raise KeyboardInterrupt
        keep(self, ids, block)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Sink, "keep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipeline.extract_layers(photos, out, recipes=RECIPES, **options())  # type: ignore[arg-type]
    pipeline.extract_layers(photos, out, recipes=RECIPES, **options())  # type: ignore[arg-type]
    for folder in (tmp_path / "alone").iterdir():
        assert contents(out / folder.name) == contents(folder)
    # Not more than the batches of one run and of the batch that was interrupted, per set.
    assert max(calls) == 5
    assert calls.count(5) < 12
    calls.clear()
    pipeline.extract_layers(photos, out, recipes=RECIPES, **options())  # type: ignore[arg-type]
    assert calls == []


@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_outputs_of_one_pass_are_those_of_several(own: None, engine: str, precision: str) -> None:
    torch.manual_seed(0)
    state = Own().state_dict()
    recipes = [resolve_recipe(name, precision) for name in RECIPES]
    windows = torch.randint(0, 255, (3, 1, 16, 16, 3), dtype=torch.uint8)
    together = RecipeNetwork(recipes[0], dict(state), "cpu", engine, recipes[1:]).every(windows)
    for recipe, rows in zip(recipes, together, strict=True):
        assert torch.equal(RecipeNetwork(recipe, dict(state), "cpu", engine)(windows), rows)


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        # Before a norm, an addition and an activation, and what the next block adds.
        ("torchvision:resnet18", ("conv1", "layer1.0", "layer1.1.bn2", "layer3.1.conv1", "layer4")),
        ("timm:test_vit", ("blocks.0.mlp.fc1", "blocks.1")),
        ("torchvision:vit_b_32", (f"{BLOCK}0.self_attention", f"{BLOCK}1.mlp.0", f"{BLOCK}2")),
    ],
)
def test_a_layer_that_is_read_changes_no_later_one(
    model: str, layers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_narrow_torchvision(monkeypatch)
    if model.startswith("timm:"):
        pytest.importorskip("timm", reason="needs the extra [timm]")
    recipes = [resolve_recipe(f"{model}@{layer}") for layer in layers]
    state = load_weights(recipes[0], "random:0", None, recipes[1:]).state
    size, generator = recipes[0].crop.size, torch.Generator().manual_seed(0)
    windows = torch.randint(0, 255, (1, 1, size, size, 3), dtype=torch.uint8, generator=generator)
    together = RecipeNetwork(recipes[0], dict(state), also=recipes[1:])
    for recipe, rows in zip(recipes, together.every(windows), strict=True):
        assert torch.equal(RecipeNetwork(recipe, dict(state))(windows), rows), recipe.name
    kinds = [type(module).__name__ for module in together.modules()]
    assert "BatchNorm2d" not in kinds
    assert kinds.count("ReLU") == 0


def test_layers_that_cannot_share_are_refused(own: None) -> None:
    with pytest.raises(RecipeError, match="'0-pool' is named twice"):
        layer_folders([resolve_recipe("own-pool@0")] * 2)
    with pytest.raises(RecipeError, match=r"has backbone .*extract them separately"):
        layer_folders([resolve_recipe("own@0"), resolve_recipe("resnet152-pool")])


def test_preprocessing_is_spelled_and_recorded(own: None, photos: Path, tmp_path: Path) -> None:
    from pipeline.images.backbones.known_backbones import backbone_named
    from pipeline.images.layer_recipes import preprocessed

    recipe = resolve_recipe("own@0")
    way = Preprocessing.spelled(recipe, "40:bicubic", "ten:32", (0.1, 0.2, 0.3), (), "BGR")
    assert way.resize == pipeline.Resize("shorter-side", 40, "bicubic")
    assert way.crop == pipeline.Crop("ten", 32)
    norm = pipeline.Normalise(255.0, (0.1, 0.2, 0.3), (0.25, 0.25, 0.25), "BGR")
    assert way.normalise == norm
    changed = preprocessed(recipe, way, backbone_named("own"))
    assert (changed.shape, changed.combine_crops) == ((8, 8, 6), "mean")
    compute = pipeline.Compute(weights="random:1")
    index = pipeline.extract(photos, tmp_path / "out", recipe=changed, compute=compute)
    stored = index.header.recipe
    assert resolved_like("own@0", stored).to_json() == changed.to_json()
    assert Preprocessing.spelled(recipe, crop="flip").crop == pipeline.Crop("flip", 16)
    with pytest.raises(RecipeError, match="expected numbers above 0"):
        Preprocessing.spelled(recipe, std=(0.2, 0.0, 0.2))
    fixed = resolve_recipe("torchvision:vit_b_32")
    small = Preprocessing.spelled(fixed, crop="192")
    with pytest.raises(RecipeError, match=r"crops of 192 pixels: .*choose another crop"):
        preprocessed(fixed, small, backbone_named(fixed.backbone))
    for text in ("big", "squash:", "-3"):
        with pytest.raises(RecipeError, match="the resize"):
            Preprocessing.spelled(recipe, text)


def test_the_command_has_layers_pool_and_preprocessing(
    own: None, photos: Path, tmp_path: Path
) -> None:
    given = ["--images", str(photos), "--weights", "random:1", "--rows-per-shard", "4"]
    several = ["--recipe", "own", "--layer", "0", "--layer", "1", "--pool", "mean"]
    run = CliRunner().invoke(extract, [*given, *several, "--out", str(tmp_path / "out"), "--json"])
    assert run.exit_code == 3, run.output  # of the file that is no image
    assert [facts["recipe"] for facts in json.loads(run.stdout)] == ["own-pool@0", "own-pool@1"]
    assert pipeline.read_features(tmp_path / "out/1-pool").row_shape == (6,)
    other = ["--recipe", "own", "--layer", "0", "--crop", "flip", "--mean", "0", "0", "0"]
    CliRunner().invoke(extract, [*given, *other, "--out", str(tmp_path / "other")])
    recipe = pipeline.read_features(tmp_path / "other").index.header.recipe
    assert (recipe["crop"]["rule"], recipe["normalise"]["mean"]) == ("flip", [0.0, 0.0, 0.0])
    listed = CliRunner().invoke(list_command, ["layers", "own"])
    assert listed.stdout.split()[:4] == ["name", "output", "0", "6"], listed.output
