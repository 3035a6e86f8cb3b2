"""The head whose network is trained, and the loop: batches in, weights of the best epoch out."""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from pipeline.devices import usable_device
from pipeline.hashing import sha256_of_json
from pipeline.heads import HeadError
from pipeline.heads.base import (
    FitOptions,
    Head,
    HeadKind,
    History,
    embed_rows,
    require_fitted,
    retrieval_figures,
)
from pipeline.heads.inputs.batches import BatchLoader, PairDataset
from pipeline.heads.inputs.feature_rows import Features, RowNumbers, Rows
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.links import LinkedDataset
from pipeline.heads.inputs.pairs import HeldOut, Pairs
from pipeline.heads.layers.products import products_in
from pipeline.heads.training.checkpoints import Checkpoints, TrainingState
from pipeline.heads.training.task import TrainingTask

_FEW_IMAGES = 10
"""Validation images below which R@10 of captions is 100 for any head: equal scores are common."""

# On two cores, networks up to this size train as fast with one thread as with two.
_WEIGHTS_A_THREAD = 3_000_000


class NetworkHead:
    """A trained head. Its embeddings of some rows do not depend on what it embedded before.

    Attributes
    ----------
    task : all that makes it differ from another.
    similarity : the task's.
    """

    def __init__(self, task: TrainingTask, identity: object = None) -> None:
        """Take a task and, for checkpoints, JSON values that name it."""
        self.task = task
        self.similarity: str = task.similarity
        self._identity = identity
        self._net: nn.ModuleDict | None = None
        self._device = torch.device("cpu")

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Train, and embed with the weights of the best epoch; see `train_network`.

        Raises
        ------
        HeadError
            The training data are refused, features are not finite, or the training diverged.
        """
        net, history = train_network(self.task, train, validation, options, self._identity)
        self._net, self._device = net, torch.device(options.device)
        return history

    def embed_images(self, rows: Rows) -> Features:
        """Return the output of the module "image" for each row."""
        return embed_rows(require_fitted(self._net)["image"], rows, self._device)

    def embed_captions(self, rows: Rows) -> Features:
        """Return the output of the module "caption" for each row."""
        return embed_rows(require_fitted(self._net)["caption"], rows, self._device)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, statistics and buffers of all modules."""
        return dict(require_fitted(self._net).state_dict())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave; on the CPU."""
        with torch.random.fork_rng(devices=[]):
            net = self.task.build(None)
        net.load_state_dict(tensors)
        self._net, self._device = net.eval(), torch.device("cpu")


def network_kind(settings: type[Any], task: Callable[[Any, HeadInputs], TrainingTask]) -> HeadKind:
    """Return the kind of head that trains a network.

    Parameters
    ----------
    settings : the head's settings dataclass, with a field `epochs`.
    task : returns what is trained, of settings and the features of both sides.
    """

    def make(values: Any, inputs: HeadInputs) -> Head:
        # Without the number of epochs, so that it may be raised before a training goes on, and
        # without what is off, so that checkpoints from before a setting existed stay valid.
        named = {n: value for n, value in asdict(values).items() if n != "epochs" and value != ()}
        recipes = [inputs.images.recipe_hash, inputs.captions.recipe_hash]
        return NetworkHead(task(values, inputs), [task.__module__, named, recipes])

    return HeadKind(settings, make)


def train_network(
    task: TrainingTask, pairs: Pairs, validation: HeldOut, options: FitOptions, identity: object
) -> tuple[nn.ModuleDict, History]:
    """Train a network and give it with the weights of its best epoch, in evaluation mode.

    The same pairs, task and seed give the same weights bit for bit on the CPU of one machine,
    however many workers read the batches and however often the training was interrupted. The
    global generators of torch are left as they were.

    Parameters
    ----------
    task : what is trained, and how.
    pairs : the training split.
    validation : the task's score of it chooses the epoch; the first of equals wins, or the last
        where the split has fewer than 10 images: these tell epochs apart so badly that the first
        one would win before anything is learnt.
    options : seed, device, precision, workers and where checkpoints go.
    identity : JSON values that name the task; with both splits, the word vectors, the start, the
        device, the precision and the seed they decide whether a checkpoint is of this work. The
        number of epochs should not be among them: it may be raised before an interrupted training
        is continued.

    Returns
    -------
    net : the modules that the task built, on the device of `options`.
    history : an entry an epoch: `epoch` from 1, `loss` (mean over batches), `learning_rate` (of
        the first parameter group), the figures of the validation split, and `best` (1 for the
        chosen epoch, otherwise 0).

    Raises
    ------
    HeadError
        The training data are refused, features are not finite, or the loss or a weight is not.
    """
    if task.require:
        task.require(pairs)
    device = usable_device(options.device)
    kept = None
    if options.work:
        kept = Checkpoints(options.work, _fingerprint(pairs, validation, options, identity), device)
    with _generators_of_our_own(device), _deterministic(device), _threads() as share_among:
        _seed(options.seed, device)
        net = task.build(options.words).to(device)
        share_among(net)
        optimiser = task.optimiser(net)
        initial_rates = [group["lr"] for group in optimiser.param_groups]
        _seed(options.seed, device)
        rng, negatives = (
            np.random.default_rng(options.seed),
            torch.Generator().manual_seed(options.seed),
        )
        state = TrainingState(net, optimiser, rng, negatives)
        resumed = kept is not None and kept.resume(state, task.epochs)
        if not resumed:
            _begin(net, task, pairs, options)
        history = state.history
        last_of_equals = len(validation.images) < _FEW_IMAGES
        if last_of_equals:
            options.log(
                f"validation images are too few to tell epochs apart ({len(validation.images)}): "
                "of equal scores the last wins"
            )
        loader = _loader(task, pairs, rng, options.workers, device, lambda: len(history))

        options.progress(len(history), task.epochs, 0)
        while len(history) < task.epochs and not _gave_up(history, task, last_of_equals):
            factor = task.rate(len(history), [entry[task.score] for entry in history])
            for group, rate in zip(optimiser.param_groups, initial_rates, strict=True):
                group["lr"] = rate * factor
            net.train()
            losses = []
            for batch in loader:
                optimiser.zero_grad()
                with products_in(options.precision):
                    loss = task.loss(net, batch, len(history), negatives)
                loss.backward()
                if task.clip:
                    task.clip(net.parameters())
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
                    **_figures(task, net, validation, device),
                }
            )
            if _best(history, task, last_of_equals) == len(history) - 1:
                state.best = {name: t.detach().clone() for name, t in net.state_dict().items()}
            if kept:
                kept.save(state)
            options.progress(len(history), task.epochs, 0)
        net.load_state_dict(state.best)
    best = _best(history, task, last_of_equals)
    return net.eval(), [{**entry, "best": float(at == best)} for at, entry in enumerate(history)]


def _begin(net: nn.ModuleDict, task: TrainingTask, pairs: Pairs, options: FitOptions) -> None:
    """Put a trained head's tensors into a network, or prepare it for its training data."""
    if options.start is None:
        if task.prepare:
            task.prepare(net, pairs)
        return
    try:
        net.load_state_dict(dict(options.start))
    except RuntimeError as error:
        raise HeadError(
            "the head to start from has another architecture than this experiment; give them the "
            f"same settings ({' '.join(str(error).split())})"
        ) from error


def _loader(
    task: TrainingTask,
    pairs: Pairs,
    rng: np.random.Generator,
    workers: int,
    device: torch.device,
    number: Callable[[], int],
) -> BatchLoader:
    """Return what loads an epoch; `number` returns that of the epoch that begins."""
    linked = task.linked_batches
    if pairs.links is not None and linked is not None:
        return BatchLoader(LinkedDataset(pairs), lambda: linked(pairs, rng), workers, device)

    def epoch() -> Iterator[tuple[int, RowNumbers]]:
        begun = number()
        return ((begun, rows) for rows in task.batches(pairs.image_of_caption, rng))

    return BatchLoader(PairDataset(pairs), epoch, workers, device)


def _figures(
    task: TrainingTask, net: nn.ModuleDict, validation: HeldOut, device: torch.device
) -> dict[str, float]:
    if task.figures is not None:
        return task.figures(net, validation, device)
    return retrieval_figures(net, task.similarity, validation, device)


def _best(history: History, task: TrainingTask, last_of_equals: bool) -> int:
    scores = [entry[task.score] for entry in history]
    first = scores.index(max(scores))
    return len(scores) - 1 - scores[::-1].index(max(scores)) if last_of_equals else first


def _gave_up(history: History, task: TrainingTask, last_of_equals: bool) -> bool:
    if task.patience is None or not history:
        return False
    return len(history) - 1 - _best(history, task, last_of_equals) > task.patience


def _require_finite(loss: float, net: nn.Module, epoch: int) -> None:
    sums = torch.stack([p.detach().abs().sum() for p in net.parameters()])
    if not (math.isfinite(loss) and bool(torch.isfinite(sums).all())):
        raise HeadError(
            f"training diverged in epoch {epoch}: the loss or a weight is not finite; lower the "
            "learning rate, or check the features for outliers"
        )


def _fingerprint(pairs: Pairs, validation: HeldOut, options: FitOptions, identity: object) -> str:
    words = None if options.words is None else hashlib.sha256(options.words.tobytes()).hexdigest()
    splits = [pairs.digest(), validation.digest()]
    start = hashlib.sha256(save(dict(options.start))).hexdigest() if options.start else None
    work = [identity, splits, words, options.seed, options.device, start]
    # Checkpoints from before there was a choice stay valid.
    return sha256_of_json(work if options.precision == "float32" else [*work, options.precision])


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
def _threads() -> Iterator[Callable[[nn.Module], None]]:
    """Give a function that has as many threads work on a network's steps as are worth it.

    Small matrices gain nothing from a second thread, and lose much where another program takes a
    core. Sums depend on the number, which so depends on the network and the machine alone.
    """
    before = torch.get_num_threads()

    def share_among(net: nn.Module) -> None:
        tables = {id(m.weight) for m in net.modules() if isinstance(m, nn.Embedding)}
        weights = sum(p.numel() for p in net.parameters() if id(p) not in tables)
        torch.set_num_threads(min(before, 1 + weights // _WEIGHTS_A_THREAD))

    try:
        yield share_among
    finally:
        torch.set_num_threads(before)


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
