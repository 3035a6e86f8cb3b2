"""The text tower of a dual encoder of transformers, in the space of its image tower."""

import importlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.networks import WeightsError
from pipeline.images.networks.transformers_models import (
    TransformersModel,
    is_dual,
    quiet_transformers,
)
from pipeline.store.devices import one_core_each
from pipeline.store.hashing import sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.encoders.base import VocabularyReport, report_on_pieces
from pipeline.text.sentence_model import ROWS, batches_of, memory_of_tower

# Models whose row is that of the last position, padding or not: their captions are padded to the
# context by the library's documentation, not by default.
_PADDED = ("siglip",)


class TransformersText:
    """Rows of the text tower: tokens, tower, projection, L2 normalisation.

    Tokens are those of the model's own tokenizer, truncated to its context with the end mark kept,
    and padded if the library's processor pads them, as SigLIP's. Deviation within rounding: no
    other caption is padded.
    """

    trained_on: tuple[str, ...] = ()

    def __init__(self, model: TransformersModel, source: str) -> None:
        """Load tokenizer and tower, with weights from `source` as of `TransformersModel.load`."""
        self.name: str = model.name
        self._net = cast(Any, model.build(_text_side))
        loaded = model.load(source, _text_side)
        self._net.load_state_dict(loaded.state)
        self.weights: tuple[str, str] = loaded.name, loaded.sha256
        self._tokenizer = _tokenizer(model)
        way = _processing(self._net.config.model_type)
        self._padded = way.get("padding") == "max_length"
        positions = getattr(self._net.config.get_text_config(), "max_position_embeddings", None)
        limits = [self._tokenizer.model_max_length, positions, way.get("max_length")]
        # Maximum number of tokens per caption, including marks.
        self.context_length: int = min(limit for limit in limits if limit)
        self._threads = torch.get_num_threads()
        self.dim: int = self._width()

    @property
    def memory(self) -> int:
        """Memory of the tower and of concurrent batches, in bytes."""
        return memory_of_tower(self._net, self.context_length, ROWS, self._threads)

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "transformers",
            "model": self.name,
            "tokens": {
                "tokenizer": type(self._tokenizer).__name__,
                "vocabulary": sha256_of_json(self._tokenizer.get_vocab()),
                "context_length": self.context_length,
                "padding": "to the context" if self._padded else "none",
            },
            "too long": "last tokens cut off, the end mark kept",
            "norm": "l2",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32 unit vectors."""
        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        if not texts:
            return rows
        tokens = self._tokens(texts)
        batches = [*batches_of([len(ids) for ids in tokens["input_ids"]])]
        with one_core_each(), ThreadPoolExecutor(self._threads) as pool:
            computed = pool.map(partial(self._rows, tokens), batches)
            for batch, result in zip(batches, computed, strict=True):
                rows[batch] = result[: len(batch)]
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count tokens, without marks, and captions longer than the context."""
        tokenizer, pieces = self._tokenizer, []
        for text in texts:
            ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            pieces.append(tokenizer.convert_ids_to_tokens(ids))
        room = self.context_length - tokenizer.num_special_tokens_to_add()
        row = "the row of unknown words"
        return {self.name: report_on_pieces(pieces, room, tokenizer.unk_token, row)}

    def _tokens(self, texts: Sequence[str]) -> Mapping[str, list[list[int]]]:
        """Return the network's inputs: ids and what else the tokenizer makes, a list per text."""
        padding = "max_length" if self._padded else False
        tokens: Mapping[str, list[list[int]]] = self._tokenizer(
            list(texts), padding=padding, truncation=True, max_length=self.context_length
        )
        return tokens

    @torch.inference_mode()
    def _rows(
        self, tokens: Mapping[str, list[list[int]]], batch: list[int]
    ) -> npt.NDArray[np.float32]:
        """Return the rows of texts of one length, filled up to the fixed size."""
        filled = [*batch, *[batch[0]] * (ROWS - len(batch))]
        inputs = {name: torch.tensor([of[at] for at in filled]) for name, of in tokens.items()}
        output = self._net.get_text_features(**inputs)
        embedding: Tensor = getattr(output, "pooler_output", output)
        rows: npt.NDArray[np.float32] = F.normalize(embedding.float(), dim=-1).numpy()
        return rows

    def _width(self) -> int:
        """Return the length of a row, which one batch shows."""
        try:
            _, dim = self._rows(self._tokens([""]), [0]).shape
        # The library's networks fail in any way for inputs of others.
        except Exception as error:
            raise EncoderError(
                f"{self.name}: {type(self._net).__name__} has no embedding of a text "
                f"({type(error).__name__}: {error}); choose a model with towers for images and "
                "texts, such as CLIP or SigLIP"
            ) from error
        return int(dim)


def _text_side(whole: Any) -> nn.Module:
    """Return the part of a model that texts pass through."""
    if not is_dual(whole):
        raise EncoderError(
            f"{type(whole).__name__} does not embed images and texts in one space; choose a dual "
            "encoder, such as CLIP or SigLIP, or sentence-transformer:MODEL for sentences alone"
        )
    # Also without the scale of the loss.
    for name in [n for n, _ in whole.named_children() if not n.startswith("text")]:
        delattr(whole, name)
    for name in [n for n, _ in whole.named_parameters(recurse=False)]:
        delattr(whole, name)
    return cast(nn.Module, whole)


def _processing(model_type: str) -> Mapping[str, Any]:
    """Return what the library's processor of a kind of model does with texts by default."""
    names = importlib.import_module("transformers.models.auto.processing_auto")
    library = importlib.import_module("transformers")
    processor = getattr(library, names.PROCESSOR_MAPPING_NAMES.get(model_type) or "", None)
    way = dict(getattr(processor, "text_kwargs", None) or {})
    return {"padding": "max_length", **way} if model_type in _PADDED else way


def _tokenizer(model: TransformersModel) -> Any:
    folder, library = model.tokenizer_folder(), importlib.import_module("transformers")
    try:
        with quiet_transformers():
            return library.AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise WeightsError(
            f"{folder} has no tokenizer of transformers {library.__version__} "
            f"({type(error).__name__}: {reason}); save it to the folder with "
            "tokenizer.save_pretrained; code of the model's own is not run"
        ) from error
