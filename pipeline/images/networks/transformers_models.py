"""Models of the library transformers by folder or by name on the hub: configuration and weights.

transformers is an extra and is imported when one of its models is named. Code that comes with a
model is never run.
"""

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.images.networks import WeightsError
from pipeline.images.networks.checkpoints import State, read_checkpoint, sha256_of_weights
from pipeline.images.networks.hub import HUB_ID, cached_file, download_remedy, hub_file, hub_folder
from pipeline.images.networks.random_weights import seed_of, seeded_state
from pipeline.images.networks.state_dicts import Weights, state_sha256
from pipeline.store.errors import UnknownName
from pipeline.store.extras import require
from pipeline.store.files import parse_json

PREFIX, _NEED = "transformers:", "models of transformers need"

_INDEX = ".index.json"
# Folder of CLIP and its processor in a sentence transformer of earlier versions of that library.
_INNER = "0_CLIPModel"
# The library's own files, the safe format first.
WEIGHT_FILES = [
    name + end for name in ("model.safetensors", "pytorch_model.bin") for end in ("", _INDEX)
]
_VOCABULARIES = (
    "tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model",
    "tokenizer.model",
)  # fmt: skip


@dataclass(frozen=True)
class TransformersModel:
    """A model of transformers: a folder of `save_pretrained`, or a repository of the hub."""

    source: str

    @property
    def name(self) -> str:
        """Name with the prefix, such as "transformers:facebook/dinov2-base"."""
        return PREFIX + self.source

    def cached(self, *names: str) -> Path | None:
        """Return the first of these files that is on this machine."""
        names = _also_inside(names)
        if not Path(self.source).is_dir():
            return cached_file(self.source, names) if HUB_ID.fullmatch(self.source) else None
        return next((path for name in names if (path := Path(self.source, name)).is_file()), None)

    def file(self, *names: str) -> Path:
        """Return the first of these files that exists, from the folder, hub's cache or hub."""
        if (path := self.cached(*names)) is not None:
            return path
        if Path(self.source).is_dir():
            raise WeightsError(
                f"the folder {self.source} has no {' or '.join(names)}; it must have the files of "
                "save_pretrained of the model and of its image processor or tokenizer"
            )
        if not HUB_ID.fullmatch(self.source):
            raise UnknownName(
                f"{self.source!r} is neither a folder nor a name on the hub, such as "
                "transformers:facebook/dinov2-base"
            )
        try:
            return hub_file(self.source, _also_inside(names))
        except OSError as error:
            raise WeightsError(
                f"{error}; {download_remedy(self.source)}, or pass a folder"
            ) from error

    def tokenizer_folder(self) -> Path:
        """Return the folder with the files of its tokenizer, downloaded if needed."""
        vocabulary = self.cached(*_VOCABULARIES)
        if Path(self.source).is_dir() or (vocabulary and self.cached("tokenizer_config.json")):
            return self.file(*_VOCABULARIES).parent
        try:
            hub_folder(self.source, lambda names: [n for n in names if _is_of_tokenizer(n)])
            return self.file(*_VOCABULARIES).parent
        except OSError as error:
            raise WeightsError(
                f"{error}; {download_remedy(self.source)}, or pass a folder"
            ) from error

    def architecture(self) -> tuple[Any, Any]:
        """Return the class that the weights were saved from, and its configuration."""
        library, path = require("transformers", _NEED), self.file("config.json")
        try:
            with quiet_transformers():
                config = library.AutoConfig.from_pretrained(
                    str(path.parent), local_files_only=True, trust_remote_code=False
                )
            found = getattr(library, config.architectures[0])
            if not issubclass(found, library.PreTrainedModel):
                raise TypeError(f"{found.__name__} is not a model")
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise WeightsError(
                f"{path} is not the configuration of a model of transformers {library.__version__} "
                f"({type(error).__name__}: {reason}); code of the model's own is not run"
            ) from error
        config.return_dict = True
        return found, config

    def build(self, part: Callable[[Any], nn.Module]) -> nn.Module:
        """Return a part of the network on the current device, without values of its weights."""
        architecture, config = self.architecture()
        initialization = importlib.import_module("transformers.initialization")
        with quiet_transformers(), initialization.no_init_weights():
            net = architecture(config).float()
        return part(net.eval().requires_grad_(False))

    def load(self, source: str, part: Callable[[Any], nn.Module]) -> Weights:
        """Load the weights of a part of the network.

        `source` is "pretrained" (the folder's, or those on the hub), "random:SEED", or the path of
        a `.safetensors`, `.bin`, `.pth` or `.pt` file with the names of `save_pretrained`.
        """
        if source.startswith("random:"):
            whole = self.build(_whole)
            # Both sides of a dual encoder have the weights, and the SHA-256, of one model.
            net = whole if is_dual(whole) else part(whole)
            state = seeded_state(net, seed_of(source), "")
            names = part(whole).state_dict()
            return Weights(source, state_sha256(state), {name: state[name] for name in names})
        own = source == "pretrained"
        path = self._weights() if own else Path(source)
        # As a rule there is one; others are averages or of a training program.
        tensors = next(iter(read_checkpoint(path).values()), {})
        name = self.name if own else f"file:{path.name}"
        return Weights(name, sha256_of_weights(path), self._fitted(tensors, path, part))

    def _weights(self) -> Path:
        """Return the file with the weights, or the folder with all that an index names."""
        path = self.file(*WEIGHT_FILES)
        if Path(self.source).is_dir():
            return path.parent
        if not path.name.endswith(_INDEX):
            return path
        for name in {*parse_json(path.read_text(encoding="utf-8"))["weight_map"].values()}:
            self.file(Path(name).name)
        return path.parent

    def _fitted(self, tensors: State, path: Path, part: Callable[[Any], nn.Module]) -> State:
        """Return the complete state of a part, by the library's conversion of older names."""
        architecture, config = self.architecture()
        with quiet_transformers():
            net, report = architecture.from_pretrained(
                None, config=config, state_dict=tensors, dtype=torch.float32,
                output_loading_info=True, ignore_mismatched_sizes=True,
            )  # fmt: skip
        prefix, net = f"{net.base_model_prefix}.", part(net)
        state = {key: value.detach().contiguous() for key, value in net.state_dict().items()}
        faults = [f"{key} is missing" for key in sorted(report["missing_keys"])]
        for key, shape, expected in sorted(report["mismatched_keys"]):
            faults.append(f"{key} has shape {tuple(shape)}, not {tuple(expected)}")
        # Heads and towers that are not part of it may be missing.
        faults = [f for f in faults if {(key := f.split()[0]), key.removeprefix(prefix)} & {*state}]
        if faults:
            raise WeightsError(
                f"{path} does not fit {self.name}: {len(faults)} keys differ, first "
                f"{'; '.join(faults[:5])}; pass the weights of that network"
            )
        return state


def _whole(net: nn.Module) -> nn.Module:
    return net


def _also_inside(names: tuple[str, ...]) -> tuple[str, ...]:
    return *names, *(f"{_INNER}/{name}" for name in names)


def _is_of_tokenizer(name: str) -> bool:
    own = "/" not in name.removeprefix(f"{_INNER}/")
    return own and name.endswith((".json", ".txt", ".model"))


def is_dual(net: Any) -> bool:
    """Return whether a model embeds images and texts in one space."""
    return hasattr(net, "get_image_features") and hasattr(net, "get_text_features")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress the library's progress bars and advice within the block."""
    library = importlib.import_module("transformers.utils.logging")
    bars, level = library.is_progress_bar_enabled(), logging.root.manager.disable
    library.disable_progress_bar()
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)
        if bars:
            library.enable_progress_bar()
