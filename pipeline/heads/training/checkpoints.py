"""Checkpoints: the training state after an epoch in one safetensors file, for exact resumption.

Tensors are stored by name; everything else is one JSON text in the metadata. The network draws
from torch's global generator, so its state is saved too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from pipeline.heads.base import History
from pipeline.store.files import appearing_whole, parse_json
from pipeline.store.hashing import canonical_json
from pipeline.store.own_files import DamagedFile, reading

CHECKPOINT_FILE = "checkpoint.safetensors"
_FORMAT = 1


@dataclass
class TrainingState:
    """Everything that changes from epoch to epoch."""

    net: nn.ModuleDict
    optimiser: torch.optim.Optimizer
    rng: np.random.Generator  # of the batches
    negatives: torch.Generator  # of the loss
    history: History = field(default_factory=list)  # one entry per finished epoch
    best: dict[str, Tensor] = field(default_factory=dict)  # state dictionary after the best epoch


@dataclass(frozen=True)
class Checkpoints:
    """Location and identity of a training's checkpoint."""

    folder: Path
    fingerprint: str  # hash of the work; a checkpoint with another one is ignored
    device: torch.device

    def save(self, state: TrainingState) -> None:
        """Write the state atomically, in place of that of an earlier epoch."""
        tensors = {f"net.{name}": value for name, value in state.net.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in state.best.items()}
        tensors["torch"] = torch.get_rng_state()
        tensors["negatives"] = state.negatives.get_state()
        if self.device.type == "cuda":
            tensors["cuda"] = torch.cuda.get_rng_state(self.device)
        plain: dict[str, dict[str, Any]] = {}
        for number, values in state.optimiser.state_dict()["state"].items():
            plain[str(number)] = {}
            for name, value in values.items():
                if isinstance(value, Tensor):
                    tensors[f"optimiser.{number}.{name}"] = value
                else:
                    plain[str(number)][name] = value
        record = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "history": state.history,
            "optimiser": plain,
            "numpy": state.rng.bit_generator.state,
        }
        # Clones: safetensors rejects tensors that share memory, such as tied weights.
        copies = {name: value.detach().cpu().clone() for name, value in tensors.items()}
        with appearing_whole(self.folder / CHECKPOINT_FILE) as part:
            part.write_bytes(save(copies, {"state": canonical_json(record)}))

    def resume(self, state: TrainingState, epochs: int) -> bool:
        """Load the checkpoint into a freshly built state, and return whether there was one.

        A checkpoint of other work, of another network or of more than `epochs` epochs, and a
        corrupt or incomplete file, are ignored; the next `save` replaces them.
        """
        path = self.folder / CHECKPOINT_FILE
        for leftover in self.folder.glob(f"{CHECKPOINT_FILE}.*.part"):
            leftover.unlink()
        if not path.is_file():
            return False
        try:
            with reading(path, "a checkpoint", "delete it"), safe_open(path, "pt") as file:
                record = parse_json(file.metadata()["state"])
                if (record["format"], record["fingerprint"]) != (_FORMAT, self.fingerprint):
                    return False
                if len(record["history"]) > epochs:
                    return False
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                # All parts are read before the state changes, since a missing one leaves it fresh.
                net, best = _below("net", tensors), _below("best", tensors)
                # Another version of the same head may build another network.
                if not _shapes(net) == _shapes(best) == _shapes(state.net.state_dict()):
                    return False
                optimiser = {int(n): dict(v) for n, v in record["optimiser"].items()}
                for name, value in _below("optimiser", tensors).items():
                    number, _, key = name.partition(".")
                    optimiser[int(number)][key] = value
                if len({frozenset(of_parameter) for of_parameter in optimiser.values()}) > 1:
                    raise KeyError("the optimiser lacks a tensor")
                names = ("torch", "negatives", *(["cuda"] if self.device.type == "cuda" else []))
                generators = {name: tensors[name] for name in names}
        except DamagedFile:
            return False
        state.net.load_state_dict(net)
        state.best = {name: t.to(self.device) for name, t in best.items()}
        # Param groups hold the settings of this task; keep the fresh ones.
        groups = state.optimiser.state_dict()["param_groups"]
        state.optimiser.load_state_dict({"state": optimiser, "param_groups": groups})
        state.rng.bit_generator.state = record["numpy"]
        state.negatives.set_state(generators["negatives"])
        state.history = record["history"]
        torch.set_rng_state(generators["torch"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(generators["cuda"], self.device)
        return True


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
