"""The training loop: batches in, the weights of the best epoch out."""

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from pipeline.devices import usable_device
from pipeline.hashing import sha256_of_json
from pipeline.heads.base import History, Run
from pipeline.heads.data.loader import BatchLoader
from pipeline.heads.data.pairs import Pairs
from pipeline.heads.errors import HeadError
from pipeline.heads.training.checkpoints import Checkpoints, TrainingState
from pipeline.heads.training.task import Design
from pipeline.heads.training.validation import retrieval_figures


def train(
    design: Design, pairs: Pairs, validation: Pairs, run: Run, identity: object
) -> tuple[nn.ModuleDict, History]:
    """Train a network and give it with the weights of its best epoch, in evaluation mode.

    The same pairs, design and seed give the same weights bit for bit on the CPU of one machine,
    however many workers read the batches and however often the training was interrupted. The
    global generators of torch are left as they were.

    Parameters
    ----------
    design : what is trained, and how.
    pairs : the training split.
    validation : its rsum chooses the epoch; the first of equals wins.
    run : seed, device, workers and where checkpoints go.
    identity : JSON values that name the design; with both splits, the word vectors, the device
        and the seed they decide whether a checkpoint is of this work. The number of epochs should
        not be among them: it may be raised before an interrupted training is continued.

    Returns
    -------
    net : the modules that the design built, on the run's device.
    history : an entry an epoch: `epoch` from 1, `loss` (mean over batches), `learning_rate` (of
        the first parameter group), the figures of the validation split, and `best` (1 for the
        chosen epoch, otherwise 0).

    Raises
    ------
    HeadError
        The training data are refused, features are not finite, or the loss or a weight is not.
    """
    if design.require:
        design.require(pairs)
    device = usable_device(run.device)
    kept = None
    if run.work:
        kept = Checkpoints(run.work, _fingerprint(pairs, validation, run, identity), device)
    with _generators_of_our_own(device), _deterministic(device):
        _seed(run.seed, device)
        net = design.build(run.words).to(device)
        optimiser = design.optimiser(net)
        initial_rates = [group["lr"] for group in optimiser.param_groups]
        _seed(run.seed, device)
        rng, negatives = np.random.default_rng(run.seed), torch.Generator().manual_seed(run.seed)
        state = TrainingState(net, optimiser, rng, negatives)
        resumed = kept is not None and kept.resume(state, design.epochs)
        if design.prepare and not resumed:
            design.prepare(net, pairs)
        history = state.history
        loader = BatchLoader(pairs, design.batches, rng, run.workers, device)

        run.progress(len(history), design.epochs, 0)
        while len(history) < design.epochs and not _gave_up(history, design.patience):
            factor = design.rate(len(history), [entry["rsum"] for entry in history])
            for group, rate in zip(optimiser.param_groups, initial_rates, strict=True):
                group["lr"] = rate * factor
            net.train()
            losses = []
            for batch in loader:
                optimiser.zero_grad()
                loss = design.loss(net, batch, len(history), negatives)
                loss.backward()
                if design.clip:
                    design.clip(net.parameters())
                optimiser.step()
                losses.append(loss.detach())
            mean_loss = float(torch.stack(losses).double().mean())
            _require_finite(mean_loss, net, epoch=len(history) + 1)

            net.eval()
            history.append(
                {
                    "epoch": len(history) + 1,
                    "loss": mean_loss,
                    "learning_rate": initial_rates[0] * factor,
                    **retrieval_figures(net, design.similarity, validation, device),
                }
            )
            if _best(history) == len(history) - 1:
                state.best = {name: t.detach().clone() for name, t in net.state_dict().items()}
            if kept:
                kept.save(state)
            run.progress(len(history), design.epochs, 0)
        net.load_state_dict(state.best)
    best = _best(history)
    return net.eval(), [{**entry, "best": float(at == best)} for at, entry in enumerate(history)]


def _best(history: History) -> int:
    scores = [entry["rsum"] for entry in history]
    return scores.index(max(scores))


def _gave_up(history: History, patience: int | None) -> bool:
    return patience is not None and bool(history) and len(history) - 1 - _best(history) > patience


def _require_finite(loss: float, net: nn.Module, epoch: int) -> None:
    sums = torch.stack([p.detach().abs().sum() for p in net.parameters()])
    if not (math.isfinite(loss) and bool(torch.isfinite(sums).all())):
        raise HeadError(
            f"training diverged in epoch {epoch}: the loss or a weight is not finite; lower the "
            "learning rate, or check the features for outliers"
        )


def _fingerprint(pairs: Pairs, validation: Pairs, run: Run, identity: object) -> str:
    words = None if run.words is None else hashlib.sha256(run.words.tobytes()).hexdigest()
    splits = [pairs.digest(), validation.digest()]
    return sha256_of_json([identity, splits, words, run.seed, run.device])


@contextmanager
def _generators_of_our_own(device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def _seed(seed: int, device: torch.device) -> None:
    # Not torch.manual_seed: it seeds the generators of all devices, not of those we give back.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Have torch sum in a fixed order on the CPU, where that costs next to nothing.

    Without it the gradient of an indexing is summed in the order in which threads come. On a GPU
    some operations have no such form, and training there is repeatable only nearly.
    """
    before = torch.are_deterministic_algorithms_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        # It would write every new tensor twice.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
