"""Models of transformers: pixels and rows are those of the library's own processor and model."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.layer_recipes import layer_outputs
from pipeline.images.network import RecipeNetwork
from pipeline.images.networks import WeightsError
from pipeline.images.recipes import Recipe, RecipeError, resolve_recipe
from pipeline.images.transforms import read_sample
from pipeline.images.weights import are_here, load_weights
from pipeline.store.errors import UnknownName
from pipeline.store.hashing import sha256_of_file

transformers = pytest.importorskip("transformers", reason="needs the extra [transformers]")

_SIDES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
_TOWER = {**_SIDES, "num_attention_heads": 2}
_IMAGE = {**_TOWER, "image_size": 64, "patch_size": 16}
_DUAL = {"text_config": {**_TOWER, "vocab_size": 99}, "vision_config": _IMAGE}
_SQUARE = {"size": {"height": 64, "width": 64}}
_SHORTER = {"size": {"shortest_edge": 72}, "crop_size": {"height": 64, "width": 64}}

# By model: its class, configuration, image processor with settings, a layer, and the class tokens
# and registers before its patches; None: maps.
MODELS: dict[str, tuple[str, str, dict[str, Any], str, dict[str, Any], str, int | None]] = {
    "clip": (
        "CLIPModel", "CLIPConfig", {**_DUAL, "projection_dim": 24}, "CLIPImageProcessor", _SHORTER,
        "vision_model.encoder.layers.0", 1,
    ),
    "siglip2": (
        "SiglipModel", "SiglipConfig", _DUAL, "SiglipImageProcessor", {**_SQUARE, "resample": 2},
        "vision_model.encoder.layers.1.mlp", 0,
    ),
    "dinov2": (
        "Dinov2Model", "Dinov2Config", _IMAGE, "BitImageProcessor", _SHORTER,
        "encoder.layer.0.attention", 1,
    ),
    "dinov3": (
        "DINOv3ViTModel", "DINOv3ViTConfig", {**_IMAGE, "num_register_tokens": 4},
        "DINOv3ViTImageProcessor", _SQUARE, "model.layer.0", 5,
    ),
    "vit": ("ViTModel", "ViTConfig", _IMAGE, "ViTImageProcessor", _SQUARE, "layers.1", 1),
    "vit-classifier": (
        "ViTForImageClassification", "ViTConfig", _IMAGE, "ViTImageProcessor", _SQUARE,
        "layers.0.mlp", 1,
    ),
    "convnextv2": (
        "ConvNextV2ForImageClassification", "ConvNextV2Config",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}, "ConvNextImageProcessor",
        {"size": {"shortest_edge": 64}}, "encoder.stages.2", None,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the function that saves a model once, and returns its folder."""

    def save(name: str) -> Path:
        folder = tmp_path_factory.getbasetemp() / "transformers" / name
        if not folder.is_dir():
            kind, config, sides, processor, settings, _, _ = MODELS[name]
            torch.manual_seed(0)
            net = getattr(transformers, kind)(getattr(transformers, config)(**sides))
            for parameter in net.parameters():
                # The library's own are too small for differences to be seen.
                torch.nn.init.normal_(parameter, std=0.2)
            net.save_pretrained(folder)
            getattr(transformers, processor)(**settings).save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return files of odd-sized images, smooth and noisy."""
    folder, random, paths = tmp_path_factory.mktemp("photos"), np.random.default_rng(0), []
    for number, (width, height) in enumerate([(97, 131), (333, 200), (64, 64), (75, 301)]):
        small = random.integers(0, 256, (7, 5, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(small).resize((width, height)), np.int16)
        pixels = smooth + random.integers(-40, 40, smooth.shape)
        paths.append(folder / f"{number}.png")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(paths[-1])
    return paths


def pixels_of(folder: Path, photos: list[Path], backend: str) -> Tensor:
    """Return what the library's processor makes of images."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend=backend)
    images = [Image.open(path) for path in photos]
    pixels: Tensor = processor(images=images, return_tensors="pt")["pixel_values"]
    return pixels


def windows_of(recipe: Recipe, photos: list[Path]) -> Tensor:
    found = [read_sample(photo, recipe, recipe.crop).windows for photo in photos]
    return torch.from_numpy(np.stack([windows for windows in found if windows is not None]))


@torch.inference_mode()
def expected_of(folder: Path, pixels: Tensor, layer: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the library's rows, last hidden states, and the output of a layer."""
    net = transformers.AutoModel.from_pretrained(folder).eval()
    seen: list[Any] = []
    net.get_submodule(layer).register_forward_hook(lambda _, __, output: seen.append(output))
    if hasattr(net, "get_image_features"):
        row = net(input_ids=torch.ones(1, 4, dtype=torch.long), pixel_values=pixels).image_embeds
        hidden = net.vision_model(pixel_values=pixels).last_hidden_state
    else:
        output = net(pixel_values=pixels)
        row, hidden = output.pooler_output, output.last_hidden_state
    return row, hidden, seen[0] if isinstance(seen[0], Tensor) else seen[0][0]


def cells(output: Tensor, prefix: int | None) -> Tensor:
    """Return the grid of (n, tokens, channels) or maps."""
    if prefix is None:
        return output.permute(0, 2, 3, 1)
    patches = output[:, prefix:]
    return patches.unflatten(1, (int(patches.shape[1] ** 0.5), -1))


@pytest.mark.parametrize("model", MODELS)
def test_pixels_and_rows_are_the_librarys(
    saved: Callable[[str], Path], photos: list[Path], model: str
) -> None:
    folder, (*_, layer, prefix) = saved(model), MODELS[model]
    name = f"transformers:{folder}"
    recipe = resolve_recipe(name)
    state = load_weights(recipe).state

    def network(name: str, engine: str = "reference") -> RecipeNetwork:
        return RecipeNetwork(resolve_recipe(name), dict(state), "cpu", engine)

    ours = network(name)
    windows = windows_of(recipe, photos)
    pixels = ours.normalised(windows.flatten(0, 1)).contiguous()
    theirs = pixels_of(folder, photos, "torchvision" if model == "dinov3" else "pil")
    # DINOv3's processor resizes in floating point; Pillow rounds rows, then columns, to 8 bits.
    step = 1 / 255 / min(recipe.normalise.std) if model == "dinov3" else 0
    np.testing.assert_allclose(pixels, theirs, rtol=0, atol=step + 2e-6)
    row, hidden, output = expected_of(folder, pixels, layer)
    same = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    if model == "vit-classifier":
        row = hidden[:, 0]  # what its classifier reads; a pooler would be untrained
        assert recipe.name == f"{name}-class"
    same(ours(windows), row)
    grid = network(f"{name}-grid", "fast")
    same(grid(windows), cells(hidden, prefix))
    at = network(f"{name}-grid@{layer}")
    same(at(windows), cells(output, prefix))
    if prefix:
        same(network(f"{name}-class")(windows), hidden[:, 0])
        same(network(f"{name}-tokens")(windows), hidden)


def test_only_the_image_side_is_built(saved: Callable[[str], Path]) -> None:
    recipe = resolve_recipe(f"transformers:{saved('clip')}")
    backbone = backbone_named(recipe.backbone)
    names = {name.partition(".")[0] for name in backbone.outline().state_dict()}
    assert (names, recipe.norm) == ({"vision_model", "visual_projection"}, "l2")
    layers = [name for name, _ in layer_outputs(recipe, backbone)]
    assert "vision_model.encoder.layers.1.self_attn" in layers
    state = load_weights(recipe, "random:3").state
    assert RecipeNetwork(recipe, dict(state)).recipe.shape == (24,)


def test_weights_of_all_forms_are_the_same(saved: Callable[[str], Path], tmp_path: Path) -> None:
    whole = load_weights(resolve_recipe(f"transformers:{saved('vit-classifier')}"))
    file = saved("vit-classifier") / "model.safetensors"
    assert whole.sha256 == sha256_of_file(file)
    net = transformers.AutoModelForImageClassification.from_pretrained(saved("vit-classifier"))
    net.save_pretrained(tmp_path / "parts", max_shard_size="30KB")
    assert len([*(tmp_path / "parts").glob("*.safetensors")]) > 1
    (tmp_path / "bin").mkdir()
    torch.save(net.state_dict(), tmp_path / "bin" / "pytorch_model.bin")
    net.config.save_pretrained(tmp_path / "bin")
    for form in ("parts", "bin"):
        processor = saved("vit-classifier") / "preprocessor_config.json"
        (tmp_path / form / processor.name).write_bytes(processor.read_bytes())
        recipe = resolve_recipe(f"transformers:{tmp_path / form}")
        assert are_here(recipe)
        found = load_weights(recipe)
        assert found.state.keys() == whole.state.keys()
        assert all(torch.equal(found.state[key], value) for key, value in whole.state.items())
    other = load_weights(recipe, str(file))
    assert (other.name, other.sha256) == ("file:model.safetensors", whole.sha256)
    with pytest.raises(WeightsError, match=r"does not fit .*embeddings.cls_token is missing"):
        load_weights(recipe, str(saved("convnextv2") / "model.safetensors"))


def test_a_model_of_the_hub_comes_from_the_cache(
    saved: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    folder, asked = saved("vit"), []

    def cached(repository: str, name: str) -> str | None:
        asked.append(repository)
        return str(folder / name) if (folder / name).is_file() else None

    def unreachable(repository: str, name: str) -> str:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(hub, "try_to_load_from_cache", cached)
    monkeypatch.setattr(hub, "hf_hub_download", unreachable)
    monkeypatch.setattr("pipeline.images.networks.hub._unreachable", lambda: None)
    recipe = resolve_recipe("transformers:of/someone")
    assert (recipe.name, {*asked}) == ("transformers:of/someone", {"of/someone"})
    assert are_here(recipe)
    here = load_weights(resolve_recipe(f"transformers:{folder}"))
    assert load_weights(recipe).sha256 == here.sha256
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: None)
    with pytest.raises(WeightsError, match=r"\(no route to the hub\); .*`hf download of/someone`"):
        load_weights(recipe)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "padding": ({"do_pad": True}, "needs padding, which a recipe cannot express"),
    "no-crop": ({"size": {"shortest_edge": 64}}, "needs images of any size"),
    "oblong": ({"size": {"height": 64, "width": 32}}, "a size of {'height': 64, 'width': 32}"),
    "lanczos": ({"resample": 1}, "needs resampling 1"),
    "naflex": ({"image_processor_type": "Siglip2ImageProcessor"}, "steps of Siglip2ImageProcessor"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_a_recipe_cannot_express_is_refused_by_name(
    saved: Callable[[str], Path], tmp_path: Path, fault: str
) -> None:
    settings, text = WRONG[fault]
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((saved("vit") / name).read_bytes())
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    with pytest.raises(RecipeError, match=text):
        resolve_recipe(f"transformers:{tmp_path}")


def test_what_is_no_image_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="neither a folder nor a name on the hub"):
        resolve_recipe(f"transformers:{tmp_path / 'none'}")
    with pytest.raises(WeightsError, match=r"has no config.json; it must have the files"):
        resolve_recipe(f"transformers:{tmp_path}")
    bert = transformers.BertConfig(**_TOWER, architectures=["BertModel"])
    bert.save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match="BertModel reads input_ids, not images alone"):
        resolve_recipe(f"transformers:{tmp_path}")
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("raise SystemExit('run')")
    with pytest.raises(WeightsError, match="code of the model's own is not run"):
        resolve_recipe(f"transformers:{tmp_path}")
