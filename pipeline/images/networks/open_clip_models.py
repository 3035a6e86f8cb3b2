"""The models of open_clip by name: architecture, image preprocessing, location of weights.

open_clip is an extra and is imported when one of its models is named.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pipeline.images.networks import WeightsError
from pipeline.images.networks.hub import cache_remedy, cached_file, hub_file
from pipeline.store.errors import UnknownName
from pipeline.store.extras import require
from pipeline.store.wording import did_you_mean, nearest

PREFIX = "open-clip"

_HUB = "https://huggingface.co"
# Default names of open_clip's files on the hub, the safe format first.
_USUAL_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


@dataclass(frozen=True)
class ClipModel:
    """A model of open_clip with a choice of its published weights."""

    model: str  # a name in `open_clip.list_models()`, such as "ViT-B-32"
    tag: str = ""  # of published weights, such as "laion2b_s34b_b79k"

    @property
    def architecture(self) -> str:
        """Name without the tag, such as "open-clip:ViT-B-32"."""
        return f"{PREFIX}:{self.model}"

    @property
    def name(self) -> str:
        """Name with the tag, if any, such as "open-clip:ViT-B-32.laion2b_s34b_b79k"."""
        return f"{self.architecture}.{self.tag}" if self.tag else self.architecture

    @property
    def config(self) -> dict[str, Any]:
        """A copy of open_clip's configuration: `embed_dim`, `vision_cfg`, `text_cfg` and more."""
        return cast(dict[str, Any], open_clip().get_model_config(self.model))

    def preprocessing(self) -> dict[str, Any]:
        """Return the image preprocessing: mean, std, interpolation and resize_mode.

        It is that of the published weights. Without a tag it is that of all weights of the model,
        which must agree, or open_clip's default if there are none.
        """
        default = vars(open_clip().transform.PreprocessCfg())
        keys = ("mean", "std", "interpolation", "resize_mode")
        tags = [self.tag] if self.tag else self._tags()
        ways = {tag: {key: self._published(tag)[key] for key in keys} for tag in tags}
        first: dict[str, Any] = next(iter(ways.values()), {key: default[key] for key in keys})
        if any(way != first for way in ways.values()):
            raise WeightsError(
                f"the weights of {self.architecture} have different image preprocessings; name a "
                f"tag, as in {self.architecture}.{tags[0]} (available: {', '.join(tags)})"
            )
        return first

    def files(self) -> tuple[str, tuple[str, ...]]:
        """Return the hub repository with the weights of the tag, and their alternative files."""
        if not self.tag:
            tags = ", ".join(self._tags()) or "none, so pass a file"
            raise WeightsError(
                f"{self.name} names no weights; add a tag, as in {self.name}.TAG (available: "
                f"{tags}), or pass a file or random:SEED"
            )
        repository, _, file = self._published(self.tag)["hf_hub"].rpartition("/")
        return repository, (str(Path(file).with_suffix(".safetensors")), file) if file else (
            _USUAL_FILES
        )

    def _tags(self) -> list[str]:
        return list(open_clip().list_pretrained_tags_by_model(self.model))

    def _published(self, tag: str) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], open_clip().get_pretrained_cfg(self.model, tag))


def find_clip_model(name: str) -> ClipModel:
    """Return the model "open-clip:<model>" or "open-clip:<model>.<tag>", named as in open_clip."""
    library = open_clip()
    model, _, tag = name.removeprefix(f"{PREFIX}:").partition(".")
    models = library.list_models()
    if model not in models:
        hint = did_you_mean(model, models)
        raise UnknownName(f"open_clip {library.__version__} has no model {model!r}; {hint}")
    if tag:
        _require_tag(model, tag)
    return ClipModel(model, tag)


def fetch_weights(model: ClipModel) -> Path:
    """Return the file of a model's published weights, cached or downloaded."""
    repository, files = model.files()
    try:
        return hub_file(repository, files)
    except OSError as error:
        raise OSError(
            f"the weights of {model.name}: {error}; on a machine with access, download "
            f"{' or '.join(files)} of {_HUB}/{repository} and pass its path as the weights, or "
            f"{cache_remedy(repository)}"
        ) from error


def cached_weights(model: ClipModel) -> Path | None:
    """Return the cached file of a model's published weights, or None."""
    return cached_file(*model.files())


def open_clip() -> Any:
    """Import the library, or raise `MissingPackage`."""
    return require("open_clip", "models of open_clip need")


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Prevent open_clip from configuring the root logger and warning of random weights."""
    root, nothing = logging.getLogger(), logging.NullHandler()
    before = root.manager.disable
    root.addHandler(nothing)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
        root.removeHandler(nothing)


def _require_tag(model: str, tag: str) -> None:
    """Raise if the model lacks the tag, or if the tag belongs to its variant with QuickGELU."""
    tags_of, name = open_clip().list_pretrained_tags_by_model, f"{PREFIX}:{model}"
    if tag not in (tags := tags_of(model)):
        near = nearest(tag, tags) or tags
        hint = f"available: {', '.join(near)}" if near else "it has none, so pass a file"
        raise UnknownName(f"{name} has no weights {tag!r}; {hint}")
    if tag in tags_of(f"{model}-quickgelu"):
        raise WeightsError(
            f"the weights {tag!r} were trained with QuickGELU, which {name} does not have; use "
            f"{name}-quickgelu.{tag}"
        )
