"""Text towers of dual encoders: tokens and rows of the library's own processor and model."""

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.images.network import RecipeNetwork
from pipeline.images.networks import WeightsError, hub
from pipeline.images.networks.transformers_models import TransformersModel
from pipeline.images.recipes import resolve_recipe
from pipeline.images.transforms import read_sample
from pipeline.images.weights import load_weights
from pipeline.store.errors import MissingPackage, UnknownName
from pipeline.store.hashing import sha256_of_file
from pipeline.text import EncoderError
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.transformers_text import TransformersText
from tests.images.networks.tiny_transformers import DUAL, WORDS, save_dual

transformers = pytest.importorskip("transformers", reason="needs the extra [transformers]")

random = np.random.default_rng(0)
CAPTIONS = [
    "", "a", "dog", "a dog runs <end> in the park", "unheard-of", "a " * 70,
    *(" ".join(random.choice(WORDS, random.integers(1, 16))) for _ in range(44)),
]  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the function that saves a model once, and returns its folder."""
    base = tmp_path_factory.mktemp("dual")
    return lambda name: save_dual(base / name, name)


def tower(folder: Path | str, source: str = "pretrained") -> TransformersText:
    return TransformersText(TransformersModel(str(folder)), source)


@pytest.mark.parametrize("name", DUAL)
def test_rows_are_those_of_the_librarys_processor_and_model(
    saved: Callable[[str], Path], name: str
) -> None:
    folder = saved(name)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    net = transformers.AutoModel.from_pretrained(folder).eval()
    padding = {} if name == "siglip2" else {"padding": DUAL[name].padding, "max_length": 12}
    tokens = processor(text=CAPTIONS, truncation=True, return_tensors="pt", **padding)
    with torch.inference_mode():
        expected = net.get_text_features(**tokens).pooler_output
    encoder = tower(folder)
    rows = encoder.encode(CAPTIONS)
    expected = torch.nn.functional.normalize(expected, dim=-1)
    np.testing.assert_allclose(rows, expected, rtol=0, atol=2e-6)
    assert rows.std(axis=0).min() > 1e-4  # captions have different rows
    for at in (0, 3, 5, 49):
        assert (encoder.encode([CAPTIONS[at]])[0] == rows[at]).all()
    assert (encoder.encode(CAPTIONS[::-1]) == rows[::-1]).all()
    assert encoder.encode([]).shape == (0, encoder.dim)
    length = tokens["input_ids"].shape[1]
    assert encoder.recipe()["tokens"]["context_length"] == length
    (report,) = encoder.reports(CAPTIONS).values()
    marks = encoder._tokenizer.num_special_tokens_to_add()
    lengths = [len(processor.tokenizer(c)["input_ids"]) - marks for c in CAPTIONS]
    assert report.cut == tuple(at for at, n in enumerate(lengths) if n > length - marks)
    assert report.cut


def test_both_sides_have_one_space(saved: Callable[[str], Path]) -> None:
    folder = saved("clip")
    name = f"transformers:{folder}"
    recipe, encoder = resolve_recipe(name), tower(folder)
    assert (recipe.backbone, recipe.shape) == (encoder.recipe()["model"], (encoder.dim,))
    assert encoder.weights == (name, sha256_of_file(folder / "model.safetensors"))
    for source in ("pretrained", "random:3", str(folder / "model.safetensors")):
        images, captions = load_weights(recipe, source), tower(folder, source)
        assert captions.weights == (images.name, images.sha256)
    assert (
        tower(folder, "random:3").encode(["a"]) != tower(folder, "random:4").encode(["a"])
    ).all()
    children = {child for child, _ in encoder._net.named_children()}
    assert children == {"text_model", "text_projection"}
    assert not [*encoder._net.named_parameters(recurse=False)]
    assert encoder_options(name, weights="random:1").model == str(folder)


def test_a_tokenizer_of_the_hub_comes_from_the_cache(
    saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, library = saved("clip"), importlib.import_module("huggingface_hub")
    here = {path.name for path in folder.iterdir()}

    def cached(repository: str, name: str) -> str | None:
        return str(folder / name) if name in here else None

    def download(repository: str, allow_patterns: list[str]) -> str:
        assert {*allow_patterns} >= {"tokenizer.json", "tokenizer_config.json"}
        assert not {*allow_patterns} & {"model.safetensors", "onnx/config.json"}
        return str(folder)

    monkeypatch.setattr(library, "try_to_load_from_cache", cached)
    monkeypatch.setattr(hub, "_unreachable", lambda: "no route to the hub")
    assert (tower("of/someone").encode(["a"]) == tower(folder).encode(["a"])).all()
    here.remove("tokenizer_config.json")
    with pytest.raises(WeightsError, match=r"no route to the hub\); .*`hf download of/someone`"):
        tower("of/someone")
    monkeypatch.setattr(hub, "_unreachable", lambda: None)
    names = [*(path.name for path in folder.iterdir()), "onnx/config.json"]
    monkeypatch.setattr(library, "list_repo_files", lambda repository: names)
    monkeypatch.setattr(library, "snapshot_download", download)
    assert tower("of/someone").dim == 24


def test_what_has_no_text_tower_is_refused(saved: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="neither a folder nor a name on the hub"):
        tower(tmp_path / "none")
    folder, side = saved("clip"), {"hidden_size": 8, "num_attention_heads": 2}
    transformers.BertConfig(**side, architectures=["BertModel"]).save_pretrained(tmp_path)
    with pytest.raises(EncoderError, match="BertModel does not embed images and texts in one"):
        tower(tmp_path)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(WeightsError, match=r"has no tokenizer.json or .*"):
        tower(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(WeightsError, match="has no tokenizer of transformers"):
        tower(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["vocab_size"] = 5
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=r"does not fit .*has shape \(\d+, 32\), not \(5, 32\)"):
        tower(tmp_path)
    with pytest.raises(EncoderError, match="CLIPModel has no embedding of a text"):
        tower(tmp_path, "random:0")


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("transformers", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackage, match=r"caption-feature-pipeline\[transformers\]"):
        tower("of/someone")


def test_clip_of_sentence_transformers_is_read_from_its_folder(
    saved: Callable[[str], Path], tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers", reason="needs the extra [sentences]")
    shutil.copytree(saved("clip"), tmp_path / "0_CLIPModel")
    module = {"idx": 0, "name": "0", "path": "0_CLIPModel"}
    module["type"] = "sentence_transformers.models.CLIPModel"
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    model = library.SentenceTransformer(str(tmp_path), device="cpu")
    rows = tower(tmp_path).encode(CAPTIONS[:5])
    expected = model.encode(CAPTIONS[:5], normalize_embeddings=True)
    np.testing.assert_allclose(rows, expected, rtol=0, atol=2e-6)
    image = Image.fromarray(random.integers(0, 256, (72, 72, 3), dtype=np.uint8))
    image.save(tmp_path / "image.png")
    recipe = resolve_recipe(f"transformers:{tmp_path}")
    windows = read_sample(tmp_path / "image.png", recipe, recipe.crop).windows
    network = RecipeNetwork(recipe, dict(load_weights(recipe).state), "cpu", "reference")
    (row,) = network(torch.from_numpy(windows)[None])
    np.testing.assert_allclose(row, model.encode(image, normalize_embeddings=True), atol=2e-6)
    with pytest.raises(UnknownName, match="such as CLIP is transformers:a/b"):
        resolve_recipe("sentence-transformer:a/b")
