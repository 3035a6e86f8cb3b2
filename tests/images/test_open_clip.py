"""Models of open_clip: names, files and image towers, against the library; no network needed."""

from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from pipeline.images.network import RecipeNetwork
from pipeline.images.networks import WeightsError
from pipeline.images.networks.open_clip_models import (
    ClipModel,
    cached_weights,
    find_clip_model,
    open_clip,
)
from pipeline.images.networks.open_clip_weights import build_clip, load_clip_weights
from pipeline.images.networks.state_dicts import state_sha256
from pipeline.images.recipes import Recipe, RecipeError, resolve_recipe
from pipeline.images.transforms import windows_of
from pipeline.images.weights import are_here, load_weights
from pipeline.store.errors import MissingPackage, PipelineError, UnknownName
from tests.images.networks.factories import TINY, add_tiny_models
from tests.images.odd_files import photo

LAION = "open-clip:ViT-B-32.laion2b_s34b_b79k"


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path) -> ClipModel:
    add_tiny_models(tmp_path)
    return find_clip_model("open-clip:tiny-vit")


def test_a_name_has_a_model_and_perhaps_a_tag() -> None:
    found = find_clip_model(LAION)
    assert (found.model, found.tag) == ("ViT-B-32", "laion2b_s34b_b79k")
    assert (found.name, found.architecture) == (LAION, "open-clip:ViT-B-32")
    assert find_clip_model("open-clip:ViT-B-32").name == "open-clip:ViT-B-32"
    assert found.files() == (
        "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
        ("open_clip_model.safetensors", "open_clip_pytorch_model.bin"),
    )
    assert find_clip_model("open-clip:ViTamin-S.datacomp1b").files() == (
        "jienengchen/ViTamin-S", ("pytorch_model.safetensors", "pytorch_model.bin")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("ViT-B32", UnknownName, r"no model 'ViT-B32'; did you mean .*ViT-B-32"),
        ("ViT-B-32.laion2b", UnknownName, r"no weights 'laion2b'; available: .*laion2b_e16"),
        ("coca_base.mscoco", UnknownName, "it has none, so pass a file"),
        ("ViT-B-32.openai", WeightsError, r"QuickGELU.*use open-clip:ViT-B-32-quickgelu\.openai"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(
    name: str, error: type[PipelineError], message: str
) -> None:
    with pytest.raises(error, match=message):
        find_clip_model(f"open-clip:{name}")


def test_every_published_tag_can_be_named() -> None:
    """But for weights of QuickGELU under a model without it, whose sibling has them."""
    for model, tag in open_clip().list_pretrained():
        try:
            found = find_clip_model(f"open-clip:{model}.{tag}")
        except WeightsError:
            found = find_clip_model(f"open-clip:{model}-quickgelu.{tag}")
        assert found.files()[0].count("/") == 1
        assert found.preprocessing()["resize_mode"] in ("shortest", "squash")


def test_pictures_are_prepared_as_the_weights_want_them() -> None:
    siglip = find_clip_model("open-clip:ViT-B-16-SigLIP").preprocessing()
    assert siglip == find_clip_model("open-clip:ViT-B-16-SigLIP.webli").preprocessing()
    assert (siglip["mean"], siglip["resize_mode"]) == ((0.5, 0.5, 0.5), "squash")
    default, mean = find_clip_model("open-clip:coca_base"), open_clip().OPENAI_DATASET_MEAN
    assert default.preprocessing() | {"mean": mean, "resize_mode": "shortest"} == (
        default.preprocessing()
    )
    with pytest.raises(WeightsError, match=r"name a tag, as in .*ViT-L-14\.openai"):
        find_clip_model("open-clip:ViT-L-14").preprocessing()


def test_without_a_network_it_says_what_to_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(repository: str, file: str) -> str:
        raise ConnectionError(f"no route to the hub\nfor {repository}/{file}")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreachable)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *args: None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("pipeline.images.networks.hub._unreachable", lambda: None)
    model = find_clip_model(LAION)
    net: Any = None
    with pytest.raises(WeightsError, match="no route to the hub") as raised:
        load_clip_weights(model, "pretrained", net)
    assert (
        "(no route to the hub); on a machine with access, download open_clip_model.safetensors or "
        "open_clip_pytorch_model.bin of https://huggingface.co/laion/CLIP-ViT-B-32-laion2B-s34B-"
        "b79K and pass its path as the weights, or copy the folder models--laion--CLIP-ViT-B-32-"
        f"laion2B-s34B-b79K of a filled cache to {tmp_path}/hub; or use random:SEED"
    ) in str(raised.value)
    with pytest.raises(WeightsError, match=r"names no weights; add a tag.*laion2b_s34b_b79k"):
        load_clip_weights(find_clip_model("open-clip:ViT-B-32"), "pretrained", net)


def test_weights_in_the_cache_are_taken(
    tiny: ClipModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = build_clip(tiny)
    file = tmp_path / "open_clip_pytorch_model.bin"
    torch.save(net.state_dict(), file)
    monkeypatch.setattr(
        huggingface_hub,
        "try_to_load_from_cache",
        lambda repository, name: str(file) if name == file.name else None,
    )
    model, recipe = find_clip_model(LAION), resolve_recipe(LAION)
    assert cached_weights(model) == file
    assert are_here(recipe)
    assert not are_here(resolve_recipe("open-clip:ViT-B-32"))
    # The narrow file is not that of ViT-B-32, which is what it now claims to be.
    with pytest.raises(WeightsError, match=r"does not fit open-clip:ViT-B-32: \d+ missing"):
        load_clip_weights(model, "pretrained", build_clip(find_clip_model("open-clip:tiny-rn")))
    assert load_clip_weights(model, "pretrained", net).name == LAION
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *file: None)
    assert not are_here(recipe)


def test_files_of_several_layouts_have_the_same_weights(tiny: ClipModel, tmp_path: Path) -> None:
    net = build_clip(tiny)
    seeded = load_clip_weights(tiny, "random:3", net)
    assert (seeded.name, seeded.sha256) == ("random:3", state_sha256(seeded.state))
    assert seeded.sha256 == load_clip_weights(tiny, "random:3", build_clip(tiny)).sha256
    assert seeded.sha256 != load_clip_weights(tiny, "random:4", net).sha256
    # A training state of open_clip; half precision; what OpenAI's files have besides.
    trained = {f"module.{key}": value for key, value in seeded.state.items()}
    torch.save({"epoch": 3, "state_dict": trained}, tmp_path / "trained.pt")
    halves = {key: value.half() for key, value in seeded.state.items()}
    halves |= {"logit_scale": torch.ones(()), "context_length": torch.tensor(20)}
    save_file(halves, tmp_path / "halves.safetensors")
    same = load_clip_weights(tiny, str(tmp_path / "trained.pt"), net)
    assert same.name == "file:trained.pt"
    assert state_sha256(same.state) == seeded.sha256
    near = load_clip_weights(tiny, str(tmp_path / "halves.safetensors"), net)
    assert {value.dtype for value in near.state.values()} == {torch.float32}
    torch.testing.assert_close(near.state, seeded.state, rtol=1e-2, atol=1e-3)
    # A text tower under the model's own names, for a model that has it as a part.
    custom = find_clip_model("open-clip:tiny-custom")
    held = load_clip_weights(custom, "random:0", build_clip(custom)).state
    flat = {key.removeprefix("text."): value for key, value in held.items()}
    torch.save(flat, tmp_path / "flat.pt")
    read = load_clip_weights(custom, str(tmp_path / "flat.pt"), build_clip(custom))
    assert state_sha256(read.state) == state_sha256(held)


def test_weights_that_do_not_fit_are_refused(tiny: ClipModel, tmp_path: Path) -> None:
    net = build_clip(tiny)
    torch.save(build_clip(find_clip_model("open-clip:tiny-rn")).state_dict(), tmp_path / "rn.pt")
    (tmp_path / "no.pt").write_bytes(b"no weights")
    for source, message in (
        (str(tmp_path / "rn.pt"), r"missing: visual\.class_embedding, "),
        (str(tmp_path / "no.pt"), r"no\.pt"),
        ("nowhere.pt", "no weights file 'nowhere.pt'"),
        ("random:x", "must be an integer"),
    ):
        with pytest.raises(WeightsError, match=message):
            load_clip_weights(tiny, source, net)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "open_clip", None)
    with pytest.raises(MissingPackage, match=r"open-clip-torch.*\[open-clip\]"):
        find_clip_model("open-clip:ViT-B-32")


def ours(recipe: Recipe, image: Image.Image) -> torch.Tensor:
    network = RecipeNetwork(recipe, load_weights(recipe, "random:0").state)
    return network(torch.from_numpy(windows_of(image, recipe.resize, network.window))[None])


@pytest.mark.parametrize("name", TINY)
def test_rows_are_the_librarys(name: str) -> None:
    model = find_clip_model(f"open-clip:{name}")
    net, _, prepare = open_clip().create_model_and_transforms(name)
    weights = load_clip_weights(model, "random:0", net)
    net.load_state_dict(weights.state, strict=False)
    recipe = resolve_recipe(model.name)
    assert (recipe.norm, recipe.shape) == ("l2", (16,))
    # Both sides' weights are of one model, and so of one SHA-256.
    assert load_weights(recipe, "random:0").sha256 == weights.sha256
    for size in ((130, 91), (60, 99)):
        image = photo(1, *size)
        with torch.inference_mode():
            expected = net.eval().encode_image(prepare(image)[None], normalize=True)
        torch.testing.assert_close(ours(recipe, image), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "ViT-B-32.laion2b_s34b_b79k", "ViT-B-16-SigLIP.webli", "RN50-quickgelu.openai",
        "convnext_base_w_320.laion_aesthetic_s13b_b82k", "MobileCLIP-S1.datacompdr",
        "ViT-H-14-378-quickgelu.dfn5b", "EVA02-E-14-plus.laion2b_s9b_b144k",
    ],
)  # fmt: skip
def test_pictures_are_the_librarys(name: str) -> None:
    """What goes into the network, without building it."""
    recipe = resolve_recipe(f"open-clip:{name}")
    model, _, tag = name.partition(".")
    published = open_clip().get_pretrained_cfg(model, tag)
    size = open_clip().get_model_config(model)["vision_cfg"]["image_size"]
    transform = open_clip().image_transform(
        size,
        is_train=False,
        **{key: published[key] for key in ("mean", "std", "interpolation", "resize_mode")},
    )
    for image in (photo(2, 640, 427), photo(3, 301, 300)):
        window = windows_of(image, recipe.resize, recipe.crop)[0]
        said = recipe.normalise
        found = (window / said.scale - np.array(said.mean)) / np.array(said.std)
        np.testing.assert_allclose(
            found.transpose(2, 0, 1), transform(image).numpy(), atol=1e-5, rtol=0
        )


def test_a_picture_that_no_recipe_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"embed_dim": 4, "vision_cfg": {"image_size": [224, 448]}, "text_cfg": {}}
    monkeypatch.setattr(open_clip(), "get_model_config", lambda name: config)
    with pytest.raises(RecipeError, match=r"\[224, 448\].*square input"):
        resolve_recipe("open-clip:tiny-vit")
