"""A trained head on disk: `head.safetensors`, `head.json` and `history.json`, no pickle."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors.torch import load_file, save
from torch import nn

from pipeline.heads import HeadError
from pipeline.heads.base import Head, History
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.feature_rows import ArrayRows, Features
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.store.devices import usable_device
from pipeline.store.files import appearing_whole, parse_json, write_json
from pipeline.store.hashing import sha256_of_file
from pipeline.store.own_files import reading
from pipeline.store.schema import convert_fields, decode

TENSORS_FILE, HEAD_FILE, HISTORY_FILE = "head.safetensors", "head.json", "history.json"

_StoredHistory = Annotated[list[dict[str, int | float | bool]], msgspec.Meta(min_length=1)]


class _Learnt(msgspec.Struct):
    """The training record in `head.json`."""

    tensors_sha256: str
    history: _StoredHistory

    def __post_init__(self) -> None:
        for at, entry in enumerate(self.history):
            if "loss" in entry and "epoch" not in entry:
                raise ValueError(f"history[{at}] has a loss, but no epoch")


@dataclass(frozen=True)
class TrainedHead:
    """A fitted head and its provenance, as `load_head` returns it."""

    experiment: str  # name
    kind: str  # name of the head, in `head_types.HEADS`
    settings: Mapping[str, Any]  # non-default, as JSON values
    seed: int
    dataset: str
    train_split: str
    validation_split: str  # for model selection
    inputs: HeadInputs  # features of both sides, with their full recipes
    made_from: Mapping[str, str]  # SHA-256 of manifest and rows; see `inputs.pairs.made_from`
    word_vectors: Mapping[str, Any] | None  # name, SHA-256 and, if known, training data
    history: History  # one entry per epoch
    created_by: str  # software and versions
    head: Head
    average_captions: bool = False  # one caption per image; see `inputs.averaged.averaged`
    # Options, start and weights; None: on stored features.
    finetuning: Mapping[str, Any] | None = None
    # Of the products in training. Files omit both at these values, as those of older versions do.
    precision: str = "float32"
    plugin: str = ""  # "distribution==version" of a head of another package
    tensors_sha256: str | None = None  # of the tensor file; None before saving
    device: str = "cpu"  # of the modules; not saved

    @property
    def provenance(self) -> dict[str, Any]:
        """Provenance of its embeddings as JSON values."""
        return {
            "experiment": self.experiment,
            "head": self.kind,
            "settings": dict(self.settings),
            "seed": self.seed,
            "trained_on": f"{self.dataset}/{self.train_split}",
            "chosen_on": f"{self.dataset}/{self.validation_split}",
            "inputs": asdict(self.inputs),
            "word_vectors": None if self.word_vectors is None else dict(self.word_vectors),
            "average_captions": self.average_captions,
            "finetuning": None if self.finetuning is None else dict(self.finetuning),
            **self._unusual,
            "software": self.created_by,
            "tensors_sha256": self.tensors_sha256,
        }

    @cached_property
    def image(self) -> nn.Module:
        """Torch module from image features (n, *row_shape) float32 to embeddings, with gradients.

        In evaluation mode. Its rows have the bytes of `embed_images` for trained networks and `cca`
        on given features, if batch and device are the same; otherwise they are within rounding.
        """
        return self._towers["image"]

    @cached_property
    def caption(self) -> nn.Module:
        """Torch module of captions, as `image` is of images; token ids have no gradients."""
        return self._towers["caption"]

    @property
    def _towers(self) -> nn.ModuleDict:
        towers = getattr(self.head, "towers", None)
        if towers is None:
            raise HeadError(
                f"the head {self.kind!r} of {self.plugin or self.experiment} has no method "
                "`towers`, which returns its torch modules; use `embed_images` and "
                "`embed_captions`, or add the method"
            )
        modules: nn.ModuleDict = towers().to(self.device)
        return modules

    @property
    def _unusual(self) -> dict[str, str]:
        precision = {} if self.precision == "float32" else {"precision": self.precision}
        return precision | ({"plugin": self.plugin} if self.plugin else {})

    @property
    def chosen(self) -> Mapping[str, float]:
        """The history entry of the selected epoch."""
        return next((entry for entry in self.history if entry.get("best")), self.history[-1])

    def embed_images(self, features: "npt.ArrayLike") -> Features:
        """Embed image features of the recipe that the head was fitted on.

        Parameters
        ----------
        features : array_like. (row_shape) of one image or (n, *row_shape) of several, all finite;
            a `pipeline.FeatureSet` is read into memory.

        Returns
        -------
        numpy.ndarray
            (dim,) float32 of one image, (n, dim) of several; (parts, dim) and (n, parts, dim) if
            the similarity compares sets of vectors.

        Raises
        ------
        HeadError
            The array has another shape, or a row is not finite.
        """
        rows, chosen = _rows(features, self.inputs.images, "image")
        return self.head.embed_images(rows)[chosen]

    def embed_captions(self, features: "npt.ArrayLike") -> Features:
        """Embed caption features (n, *row_shape) or (row_shape), as `embed_images` does."""
        rows, chosen = _rows(features, self.inputs.captions, "caption")
        return self.head.embed_captions(rows)[chosen]

    def save(self, folder: str | Path) -> "TrainedHead":
        """Write the head's files; return the head with `tensors_sha256`."""
        folder = Path(folder)
        path = folder / TENSORS_FILE
        # Clones: safetensors rejects tensors that share memory, such as tied weights.
        tensors = {n: t.detach().cpu().clone() for n, t in self.head.tensors().items()}
        with appearing_whole(path) as part:
            # Not save_file: it writes through a temporary file of its own, with its own mode.
            part.write_bytes(save(tensors))
        saved = replace(self, tensors_sha256=sha256_of_file(path))
        # A plain list, for plotting programs; then `head.json`, whose digest completes the head.
        write_json(folder / HISTORY_FILE, self.history)
        apart = {"head", "precision", "plugin", "device"}
        values = {f.name: getattr(saved, f.name) for f in fields(saved) if f.name not in apart}
        values |= {
            "settings": dict(self.settings),
            "inputs": asdict(self.inputs),
            "made_from": dict(self.made_from),
            "word_vectors": None if self.word_vectors is None else dict(self.word_vectors),
            "similarity": self.head.similarity,
            **self._unusual,
        }
        write_json(folder / HEAD_FILE, values)
        return saved


def read_history(folder: str | Path, tensors_sha256: str) -> History:
    """Return the history of the head with the given tensors, without loading it."""
    path = Path(folder) / HEAD_FILE
    with reading(path, "the record of a head", "run `pipeline train` again", HeadError):
        learnt = decode(path.read_bytes(), _Learnt)
    if learnt.tensors_sha256 != tensors_sha256:
        raise HeadError(
            f"{path} describes another head than the one that made the embeddings (SHA-256 of its "
            f"tensors {learnt.tensors_sha256[:16]}…, not {tensors_sha256[:16]}…)"
        )
    return cast(History, learnt.history)


def load_head(folder: str | Path, device: str = "cpu") -> TrainedHead:
    """Load a head that `pipeline train` or `TrainedHead.save` wrote; features are not needed.

    Parameters
    ----------
    folder : str or Path. Folder of the head's files.
    device : str. Torch device of its modules `image` and `caption`, and of a trained network.

    Returns
    -------
    TrainedHead

    Raises
    ------
    HeadError
        A file is missing, damaged or of an older version, or the files do not match.
    PluginError
        Its head is of a package that is not installed; the message names it.
    DeviceError
        The device is not usable.

    Examples
    --------
    >>> head = pipeline.load_head("data/heads/mine/qian2018-baseline")
    >>> images = pipeline.read_features("data/features/mine/efficientnet-lite0-pool")
    >>> head.embed_images(images[:2]).shape
    (2, 1280)
    >>> import torch
    >>> head.image(torch.from_numpy(images[:2])).shape
    torch.Size([2, 1280])
    """
    folder = Path(folder)
    described, path = folder / HEAD_FILE, folder / TENSORS_FILE
    what = f"the record of the trained head in {path}"
    with reading(described, what, "run `pipeline train` again", HeadError):
        values = convert_fields(
            parse_json(described.read_bytes()),
            TrainedHead,
            ("head", "history", "device"),
            history=_StoredHistory,
            similarity=str,
        )
        del values["similarity"]
        if sha256_of_file(path) != values["tensors_sha256"]:
            raise HeadError(
                f"{path} is not the file that {described} describes; run `pipeline train` again"
            )
        head = _unfitted(described, values)
        head.restore(load_file(path))
        trained = TrainedHead(head=head, device=str(usable_device(device)), **values)
        if device != "cpu":
            _ = trained.image, trained.caption
        return trained


def _unfitted(described: Path, values: Mapping[str, Any]) -> Head:
    try:
        return make_head(
            values["kind"], values["settings"], values["inputs"], values.get("plugin", "")
        )
    except HeadError as error:
        raise HeadError(f"{described}: {error}; run `pipeline train` again") from error


def _rows(features: npt.ArrayLike, side: FeatureSpec, name: str) -> tuple[ArrayRows, int | slice]:
    """Return rows to embed, and the index of the requested embeddings among the results."""
    numbers = ", ".join(map(str, side.shape))
    expected = f"the head accepts {side.name!r} of shape ({numbers}) or (n, {numbers})"
    try:
        array = np.asarray(features, np.float32)
    except (TypeError, ValueError, RuntimeError) as error:  # texts, ragged rows, tensors on a GPU
        raise HeadError(
            f"{name} features of type {type(features).__name__} are not an array of numbers "
            f"({error}); {expected}: `pipeline.load_encoder` makes features of sentences, "
            "`pipeline.FeatureExtractor` of images"
        ) from error
    # Heads embed at least one row: one row is a batch of one, an empty array a dummy row.
    if array.shape == side.shape:
        return ArrayRows(array[None]), 0
    if array.shape in {(0,), (0, *side.shape)}:
        return ArrayRows(np.zeros((1, *side.shape), np.float32)), slice(0)
    if array.shape[1:] != side.shape:
        raise HeadError(f"{name} features of shape {array.shape} found; {expected}")
    return ArrayRows(array), slice(None)
