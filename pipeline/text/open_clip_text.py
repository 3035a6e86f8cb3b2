"""The text tower of an open_clip model, in the embedding space of its image tower."""

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.networks import WeightsError
from pipeline.images.networks.hub import cache_remedy, datasets_in_tag
from pipeline.images.networks.open_clip_models import ClipModel, quiet_logging
from pipeline.images.networks.open_clip_models import open_clip as library
from pipeline.images.networks.open_clip_weights import build_clip, load_clip_weights
from pipeline.store.devices import one_core_each
from pipeline.text.encoders.base import VocabularyReport, report_on_pieces
from pipeline.text.sentence_model import memory_of_tower

# Rows per batch, a constant: products of other sizes are summed in another order, which would
# change a row's last bits. One caption therefore costs as much as a batch.
_ROWS = 32
# A causal tower computes a caption at its own length, rounded up to a multiple of this.
_LENGTH_STEP = 8


class OpenClip:
    """Rows of the text tower: tokens, tower, projection, L2 normalisation.

    Tokens are the model's own, truncated to its context length as in open_clip: the last ones are
    removed, the end mark stays. Deviation within rounding: a causal tower's tokens after the end
    mark are not computed, since its row, that of the end mark, does not depend on them.
    """

    def __init__(self, model: ClipModel, source: str) -> None:
        """Load tokenizer and tower, with weights from `source` as of `load_clip_weights`."""
        self.model = model
        self._tokenizer = _tokenizer(model)
        net = build_clip(model)
        loaded = load_clip_weights(model, source, net)
        net.load_state_dict(loaded.state, strict=False)
        # The image tower may be larger than the text tower.
        for other in ("visual", "text_decoder"):
            if hasattr(net, other):
                delattr(net, other)
        self._net = net
        self.weights: tuple[str, str] = loaded.name, loaded.sha256
        self.trained_on = datasets_in_tag(model.tag) if loaded.name == model.name else ()
        # Maximum number of tokens per caption, including marks.
        self.context_length: int = int(self._tokenizer.context_length)
        self.dim: int = int(model.config["embed_dim"])
        self._threads = torch.get_num_threads()
        self._of_length = {self.context_length: net}

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def memory(self) -> int:
        """Memory of the tower and of concurrent batches, in bytes."""
        return memory_of_tower(self._net, self.context_length, _ROWS, self._threads)

    def recipe(self) -> dict[str, Any]:
        text = self.model.config["text_cfg"]
        return {
            "name": self.name,
            "encoder": "open-clip",
            "model": self.model.architecture,
            "tokens": {
                "tokenizer": text.get("hf_tokenizer_name") or "open_clip's",
                "context_length": self.context_length,
                **(text.get("tokenizer_kwargs") or {}),
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
        tokens = self._tokenizer(list(texts))
        with one_core_each(), ThreadPoolExecutor(self._threads) as pool:
            for positions, batch in pool.map(self._rows, self._batches(tokens)):
                rows[positions] = batch[: len(positions)]
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count tokens, including marks, and captions longer than the context."""
        pieces = [[*map(str, _pieces(self._tokenizer, text))] for text in texts]
        return {self.name: report_on_pieces(pieces, self.context_length, None, "")}

    def _batches(self, tokens: Tensor) -> Iterator[tuple[npt.NDArray[np.intp], Tensor]]:
        """Yield positions and tokens (rows, length) int64; all batches have the same row count."""
        lengths = self._lengths(tokens)
        for length in np.unique(lengths):
            positions = np.flatnonzero(lengths == length)
            for start in range(0, len(positions), _ROWS):
                chosen = positions[start : start + _ROWS]
                batch = torch.zeros((_ROWS, int(length)), dtype=torch.long)
                batch[: len(chosen)] = tokens[torch.from_numpy(chosen), : int(length)]
                yield chosen, batch

    def _lengths(self, tokens: Tensor) -> npt.NDArray[np.int64]:
        """Return the number of tokens to compute for each caption."""
        tower, end = _text_tower(self._net), _end_mark(self._net)
        if end is None:
            return np.full(len(tokens), tokens.shape[1])
        ends = (tokens == end).int() if isinstance(end, int) else tokens
        used = ends.argmax(dim=1).numpy() + 1
        longest = tower.positional_embedding.shape[0]
        rounded = -(-used // _LENGTH_STEP) * _LENGTH_STEP
        return np.minimum(rounded, longest)

    @torch.inference_mode()
    def _rows(
        self, batch: tuple[npt.NDArray[np.intp], Tensor]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
        positions, tokens = batch
        length = tokens.shape[1]
        if length not in self._of_length:
            self._of_length[length] = _shortened(self._net, length)
        rows = self._of_length[length].encode_text(tokens, normalize=False)
        return positions, F.normalize(rows.float(), dim=-1).numpy()


def _tokenizer(model: ClipModel) -> Any:
    clip = library()
    try:
        with quiet_logging():
            return clip.get_tokenizer(model.model)
    except (ImportError, OSError, ValueError) as error:
        source = str(model.config["text_cfg"].get("hf_tokenizer_name"))
        raise WeightsError(
            f"the tokenizer of {model.architecture} is not available "
            f"({str(error).partition(chr(10))[0]}); it needs the package transformers and the "
            f"tokenizer files of {source} on the hub; without network access, "
            f"{cache_remedy(source)}"
        ) from error


def _pieces(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a caption with its marks, without truncation."""
    if hasattr(tokenizer, "encode"):
        return [tokenizer.sot_token_id, *tokenizer.encode(text), tokenizer.eot_token_id]
    inner = tokenizer.tokenizer(tokenizer.clean_fn(text), truncation=False, verbose=False)
    tokens: list[int] = inner.input_ids
    return tokens


def _text_tower(net: Any) -> Any:
    """Return the module with positions and mask: the text tower, or the model itself."""
    return getattr(net, "text", net)


def _end_mark(net: Any) -> int | str | None:
    """Return the token whose row a causal tower uses, an id or "highest"; None for other towers."""
    tower = _text_tower(net)
    causal = getattr(tower, "attn_mask", None) is not None
    if not causal or getattr(tower, "cls_emb", None) is not None:
        return None  # tokens depend on later ones, or the row is that of another token
    is_model = tower is net
    pool = tower.text_pool_type if is_model else tower.pool_type
    if pool == "argmax":
        return "highest"
    return int(tower.text_eos_id if is_model else tower.eos_id) if pool == "eos" else None


def _shortened(net: Any, length: int) -> Any:
    """Return a model with fewer positions that shares the other weights of `net`."""
    tower = _text_tower(net)
    short = copy.copy(tower)
    positions = nn.Parameter(tower.positional_embedding[:length], requires_grad=False)
    mask = tower.attn_mask[:length, :length]
    short._parameters = {**tower._parameters, "positional_embedding": positions}
    short._buffers = {**tower._buffers, "attn_mask": mask}
    if tower is net:
        return short
    whole = copy.copy(net)
    whole._modules = {**net._modules, "text": short}
    return whole
