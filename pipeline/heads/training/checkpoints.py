"""The state of a training after an epoch, in one safetensors file: a killed run goes on exactly.

All tensors lie in the file by name; everything else is one JSON text in its metadata. The random
numbers that the network draws come from torch's global generator, so its state is kept too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from pipeline.files import appearing_whole, parse_json
from pipeline.hashing import canonical_json
from pipeline.heads.base import History

CHECKPOINT_FILE = "checkpoint.safetensors"
_FORMAT = 1


@dataclass
class TrainingState:
    """All that changes from epoch to epoch.

    Attributes
    ----------
    net, optimiser : what is trained, and by what.
    rng : draws the batches.
    negatives : draws whatever a loss draws.
    history : an entry for each epoch that is done.
    best : state dictionary of the network after the best epoch; empty before the first.
    """

    net: nn.ModuleDict
    optimiser: torch.optim.Optimizer
    rng: np.random.Generator
    negatives: torch.Generator
    history: History = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoints:
    """Where the state is kept, and of what work it is.

    Attributes
    ----------
    folder : of the file.
    fingerprint : differs where the work does; a state of other work is not continued.
    device : where the network is.
    """

    folder: Path
    fingerprint: str
    device: torch.device

    def save(self, state: TrainingState) -> None:
        """Write the state, in place of the one of an earlier epoch, whole or not at all."""
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
        # Clones: safetensors refuses two names for one memory, as tied weights have.
        own = {name: value.detach().cpu().clone() for name, value in tensors.items()}
        with appearing_whole(self.folder / CHECKPOINT_FILE) as part:
            part.write_bytes(save(own, {"state": canonical_json(record)}))

    def resume(self, state: TrainingState, epochs: int) -> bool:
        """Put the kept state into a freshly built one, and return whether there was any.

        A state of other work, of another network or of more than `epochs` epochs, and a damaged
        file, are left alone; the next state that is saved takes their place.
        """
        path = self.folder / CHECKPOINT_FILE
        for leftover in self.folder.glob(f"{CHECKPOINT_FILE}.*.part"):
            leftover.unlink()
        if not path.is_file():
            return False
        try:
            with safe_open(path, "pt") as file:
                record = parse_json(file.metadata()["state"])
                if (record["format"], record["fingerprint"]) != (_FORMAT, self.fingerprint):
                    return False
                if len(record["history"]) > epochs:
                    return False
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError):
            return False
        net = _below("net", tensors)
        # An older version of the same head may have built another network.
        if _shapes(net) != _shapes(state.net.state_dict()):
            return False
        state.net.load_state_dict(net)
        state.best = {name: t.to(self.device) for name, t in _below("best", tensors).items()}
        optimiser: dict[int, dict[str, Any]] = {int(n): v for n, v in record["optimiser"].items()}
        for name, value in _below("optimiser", tensors).items():
            number, _, key = name.partition(".")
            optimiser[int(number)][key] = value
        # The groups hold the task's settings, which a fresh optimiser has.
        groups = state.optimiser.state_dict()["param_groups"]
        state.optimiser.load_state_dict({"state": optimiser, "param_groups": groups})
        state.rng.bit_generator.state = record["numpy"]
        state.negatives.set_state(tensors["negatives"])
        state.history = record["history"]
        torch.set_rng_state(tensors["torch"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["cuda"], self.device)
        return True


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
