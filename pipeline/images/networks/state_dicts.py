"""State dicts: found in checkpoints by the names and shapes of a network, and hashed."""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import Path
from typing import NamedTuple

import torch

from pipeline.images.networks import WeightsError
from pipeline.images.networks.checkpoints import State

_LISTED = 5
# Of DataParallel and torch.compile, around the network or a part of it.
_WRAPPER = re.compile(r"(^|(?<=\.))(module|_orig_mod)\.")


@dataclass(frozen=True)
class Weights:
    """Weights of a network."""

    name: str
    """As in the shards: "torchvision:VGG19_Weights.IMAGENET1K_V1", "file:mine.pth", "random:0"."""
    sha256: str
    """Of the file; for random weights and those that a library downloads, of the state."""
    state: State  # complete, float32
    prefix: str = ""
    """Prefix of the names in the file, if the caller chose among several that fit."""
    remark: str = ""
    """For the log: which part of the file was taken, and which others fit."""

    @property
    def recipe_fields(self) -> dict[str, str]:
        """Fields of a header's recipe, so that the recipe hash covers them."""
        return {"weights_prefix": self.prefix} if self.prefix else {}


@dataclass(frozen=True)
class Target:
    """A network to be filled with weights."""

    name: str
    expected: State
    """Its state dict, of which names, shapes and dtypes are read."""
    named: Callable[[State], State]
    """Returns tensors of a file with the network's names and shapes, and others as they are."""
    used: Callable[[], Collection[str]]
    """Returns the names of the tensors that features depend on."""


class Part(NamedTuple):
    """As in `Weights`."""

    state: State
    prefix: str = ""
    remark: str = ""


def find_part(
    checkpoint: Mapping[str, State], path: Path, target: Target, prefix: str | None = None
) -> Part:
    """Return the weights of a network, complete and float32, from what was read from `path`.

    What is under "state_dict" comes first, and a moving average (EMA) last, as in timm's
    validation; otherwise `prefix` has to choose if several parts fit. Tensors behind the tap may
    have any shape or be absent; then they become zeros.
    """
    expected = target.expected
    places = {
        place: renamed(state, lambda key: key if key in expected else _WRAPPER.sub("", key), path)
        for place, state in checkpoint.items()
    }
    if not places:
        raise WeightsError(
            f"{path} is not a plain state dict, which maps names to tensors; save it again with "
            "torch.save(model.state_dict(), ...)"
        )
    # Old files have none.
    counters = [key for key in expected if key.endswith("num_batches_tracked")]

    def below(start: str, tensors: State) -> State:
        part = {key[len(start) :]: v for key, v in tensors.items() if key.startswith(start)}
        zeros = {key: torch.zeros((), dtype=torch.long) for key in counters}
        return zeros | target.named(part)

    if prefix is None and len(places) == 1:
        ((place, tensors),) = places.items()
        state = below("", tensors)
        if not misfits(state, expected):
            return Part(_finished(state, expected), remark=_remark(place, ()))
    names = target.used()
    used = {key: value for key, value in expected.items() if key in names}
    # With the rank of each.
    parts = {
        place + start: (_rank(place), below(start, tensors))
        for place, tensors in places.items()
        for start in _prefixes(tensors, next(iter(used)))
    }
    fitting = [
        part
        for part, (_, state) in parts.items()
        if not misfits({key: state[key] for key in used if key in state}, used)
    ]
    first = min((parts[part][0] for part in fitting), default=0)
    usual = [part for part in fitting if parts[part][0] == first]
    chosen = usual if prefix is None else _under(prefix, fitting)
    if fitting and len(chosen) != 1:
        raise WeightsError(
            f"{path} has weights of {target.name} under {' and '.join(map(repr, fitting))}; name "
            f"one of these, as in `weights_prefix={fitting[-1].rstrip('.')}`"
        )
    part = max(chosen or parts, key=lambda each: len(used.keys() & parts[each][1].keys()))
    state = _completed(parts[part][1], expected, used)
    in_file = [place + key for place, tensors in places.items() for key in tensors]
    start = _common_prefix(in_file)
    hint = f"; all {len(in_file)} names in the file begin with {start!r}" if start else ""
    _require_fit(state, expected, path, target.name, "" if chosen else hint)
    others = [each for each in fitting if each != part]
    decided = "" if chosen == usual else part
    return Part(_finished(state, expected), decided, _remark(part, others))


def misfits(state: State, expected: State) -> dict[str, list[str]]:
    """Return the names of tensors that differ from the expected ones, by what is wrong."""
    found = {
        "missing": [key for key in expected if key not in state],
        "not in the network": [key for key in state if key not in expected],
        "of another shape": [
            f"{key} {tuple(state[key].shape)}, expected {tuple(value.shape)}"
            for key, value in expected.items()
            if key in state and state[key].shape != value.shape
        ],
    }
    return {fault: names for fault, names in found.items() if names}


def _require_fit(state: State, expected: State, path: Path, name: str, hint: str) -> None:
    """Raise if names or shapes of the tensors in `path` differ from those of the network `name`."""
    if faults := misfits(state, expected):
        listed = "; ".join(
            f"{len(names)} {fault}: {', '.join(names[:_LISTED])}{', ...' * (len(names) > _LISTED)}"
            for fault, names in faults.items()
        )
        raise WeightsError(
            f"{path} does not fit {name}: {listed}{hint}; pass the weights of that network"
        )


def renamed(tensors: State, rename: Callable[[str], str], path: Path) -> State:
    """Return tensors under new names, of which no two may be the same."""
    state: State = {}
    for key, value in tensors.items():
        if (name := rename(key)) in state:
            raise WeightsError(f"{path} has {name} twice, once as {key}; save one of them")
        state[name] = value
    return state


def state_sha256(state: State) -> str:
    """Return the SHA-256 (64 hex digits) of weights without a file: names, shapes, bytes."""
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(f"{key} {tuple(state[key].shape)} ".encode())
        digest.update(state[key].numpy().tobytes())
    return digest.hexdigest()


def _prefixes(tensors: State, name: str) -> list[str]:
    """Return the prefixes under which the network may be: that of one of its tensors, or of all."""
    starts = [key.removesuffix(name) for key in tensors if key.endswith(f".{name}")]
    return list(dict.fromkeys(["", *starts, _common_prefix(tensors)]))


def _common_prefix(names: Collection[str]) -> str:
    return re.sub(r"[^.]*$", "", commonprefix([*names]))  # noqa: RUF071 -- of names, not paths


def _under(prefix: str, parts: Iterable[str]) -> list[str]:
    """Return the part of this prefix, or those with it among their names."""
    wanted = _WRAPPER.sub("", f"{prefix.rstrip('.')}.")
    exact = [part for part in parts if part == wanted.lstrip(".")]
    return exact or [part for part in parts if f".{wanted}" in f".{part}"]


def _rank(place: str) -> int:
    return 0 if place == "state_dict." else 2 if "ema" in re.split(r"[._]", place.lower()) else 1


def _completed(state: State, expected: State, used: Collection[str]) -> State:
    """Return tensors without those of unused layers, in whose place come zeros of their shape."""
    behind = _layers(key for key in expected if key not in used) - _layers(used)
    kept = {k: v for k, v in state.items() if k in expected or not _layers([k]) & behind}
    for key, value in expected.items():
        if key not in used and (key not in kept or kept[key].shape != value.shape):
            kept[key] = torch.zeros(value.shape, dtype=value.dtype)
    return kept


def _layers(names: Iterable[str]) -> set[str]:
    """Return the layers that contain tensors, at all levels."""
    return {name[: dot.start()] for name in names for dot in re.finditer(r"\.", name)}


def _finished(state: State, expected: State) -> State:
    # Packaged tensors have other strides than a network's own.
    return {
        key: state[key].float().contiguous() if value.is_floating_point() else state[key]
        for key, value in expected.items()
    }


def _remark(part: str, others: Collection[str]) -> str:
    also = f"; weights_prefix chooses {' or '.join(others)}" if others else ""
    return f"weights: the tensors of the file under {part!r}{also}" if part or others else ""
