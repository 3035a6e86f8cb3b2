"""The text towers of open_clip against the library itself, seeded weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.networks import WeightsError
from pipeline.images.networks.open_clip_models import find_clip_model, open_clip
from pipeline.images.networks.open_clip_weights import build_clip, load_clip_weights
from pipeline.store.errors import UnknownName
from pipeline.text import EncoderError
from pipeline.text.encode import encode
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.open_clip_text import OpenClip
from tests.images.networks.factories import TINY, add_tiny_models

LONG = " ".join(f"word{number}" for number in range(40))
CAPTIONS = [
    "a dog",
    LONG,
    "",
    "A man isn't walking <end_of_text> in the park &amp; over the hills!",
    *(f"the {number} small birds sit near a {number + 1}" for number in range(70)),
]


@pytest.fixture(autouse=True)
def _tiny_models(tmp_path: Path) -> None:
    add_tiny_models(tmp_path)


@pytest.mark.parametrize("name", TINY)
def test_rows_are_the_librarys(name: str) -> None:
    model = find_clip_model(f"open-clip:{name}")
    net = build_clip(model)
    weights = load_clip_weights(model, "random:0", net)
    net.load_state_dict(weights.state, strict=False)
    with torch.inference_mode():
        tokens = open_clip().get_tokenizer(name)(CAPTIONS)
        expected = net.encode_text(tokens, normalize=True).numpy()
    encoder = OpenClip(model, "random:0")
    rows = encoder.encode(CAPTIONS)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, expected, atol=2e-6)
    assert encoder.weights == ("random:0", weights.sha256)
    assert encoder.recipe()["tokens"]["context_length"] == 20
    assert encoder.reports(CAPTIONS)[encoder.name].cut == (1,)
    assert encoder.memory > 4 * 49408 * 16


def test_what_cannot_be_had_is_refused(tmp_path: Path) -> None:
    Manifest("one", tmp_path, (ImageEntry("a", "a.jpg", "train", ("A dog.",)),), "", "", {}).write(
        tmp_path / "one"
    )
    for name, weights, error, message in (
        ("open-clip:tiny-vit", None, WeightsError, "names no weights"),
        ("open-clip:tiny-vitt", None, UnknownName, "did you mean tiny-vit"),
        ("open-clip:tiny-vit", "away.pt", WeightsError, "no weights file 'away.pt'"),
        ("open-clip:", None, UnknownName, "no encoder is called 'open-clip:'"),
        ("mean", "random:0", EncoderError, "has no option weights"),
    ):
        with pytest.raises(error, match=message):
            encode(tmp_path / "one", tmp_path / "out", encoder=name, weights=weights)
        assert not (tmp_path / "out.encoder").exists()
    with pytest.raises(EncoderError, match="has no option tokenizer"):
        encoder_options("open-clip:tiny-vit", tokenizer="klein")


def test_tokenizers_of_the_hub_are_the_librarys(tmp_path: Path) -> None:
    """As SigLIP's, which is a file of the hub; here a made one in a folder."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = ["<pad>", "<end>", "<unknown>", "a", "dog", "runs", "in", "the", "park"]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, "<unknown>")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <end>", special_tokens=[("<end>", 1)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>"
    ).save_pretrained(tmp_path / "tokenizer")
    text = {
        "context_length": 6, "vocab_size": 9, "width": 16, "heads": 2, "layers": 1,
        "no_causal_mask": True, "pool_type": "last",
        "hf_tokenizer_name": str(tmp_path / "tokenizer"),
        "tokenizer_kwargs": {"clean": "canonicalize"},
    }  # fmt: skip
    config = {**TINY["tiny-sigmoid"], "text_cfg": text}
    (tmp_path / "tiny-hub.json").write_text(json.dumps(config))
    open_clip().add_model_config(tmp_path / "tiny-hub.json")
    model = find_clip_model("open-clip:tiny-hub")
    encoder = OpenClip(model, "random:0")
    net = build_clip(model)
    net.load_state_dict(load_clip_weights(model, "random:0", net).state, strict=False)
    captions = ["A dog runs.", "a dog runs in the", "a dog runs in the park", ""]
    with torch.inference_mode():
        tokens = open_clip().get_tokenizer("tiny-hub")(captions)
        expected = net.encode_text(tokens, normalize=True).numpy()
    np.testing.assert_allclose(encoder.encode(captions), expected, atol=2e-6)
    report = encoder.reports(captions)[encoder.name]
    assert (report.cut, report.tokens) == ((2,), 4 + 6 + 6 + 1)
