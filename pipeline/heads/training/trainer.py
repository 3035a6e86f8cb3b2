"""Heads with a trained network, and the training loop, which keeps one epoch's weights."""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

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
from pipeline.heads.inputs.batches import BatchLoader, PairDataset, workers_that_end
from pipeline.heads.inputs.feature_rows import Features, Rows
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.links import LinkedDataset
from pipeline.heads.inputs.pairs import HeldOut, Pairs
from pipeline.heads.layers.products import products_in
from pipeline.heads.training.checkpoints import Checkpoints, TrainingState
from pipeline.heads.training.task import TrainingTask
from pipeline.store.devices import usable_device
from pipeline.store.hashing import sha256_of_json
from pipeline.store.shards.row_keys import RowNumbers

_FEW_IMAGES = 10
"""Validation images below which R@10 of captions is 100 for any head, so that ties are common."""

# On two cores, networks up to this size train as fast on one thread as on two.
_WEIGHTS_A_THREAD = 3_000_000


class NetworkHead:
    """A head with a trained network; a row's embedding does not depend on earlier calls."""

    def __init__(self, task: TrainingTask, identity: object = None) -> None:
        """Store the task; `identity` (JSON values) identifies it in checkpoints."""
        self.task = task
        self.similarity: str = task.similarity
        self._identity = identity
        self._net: nn.ModuleDict | None = None

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Train, and keep the weights of the selected epoch; see `train_network`."""
        net, history = train_network(self.task, train, validation, options, self._identity)
        self._net = net
        return history

    def embed_images(self, rows: Rows) -> Features:
        """Return the output of the module "image" for each row."""
        return embed_rows(self.towers()["image"], rows, self._device)

    def embed_captions(self, rows: Rows) -> Features:
        """Return the output of the module "caption" for each row."""
        return embed_rows(self.towers()["caption"], rows, self._device)

    def towers(self) -> nn.ModuleDict:
        return require_fitted(self._net)

    def tensors(self) -> dict[str, Tensor]:
        """Return parameters and buffers of all modules."""
        return dict(require_fitted(self._net).state_dict())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load tensors that `tensors` returned, on the CPU."""
        with torch.random.fork_rng(devices=[]):
            net = self.task.build(None)
        net.load_state_dict(tensors)
        self._net = net.eval()

    @property
    def _device(self) -> torch.device:
        return next(self.towers().parameters()).device


def network_kind(settings: type[Any], task: Callable[[Any, HeadInputs], TrainingTask]) -> HeadKind:
    """Return the registry entry of a trained head; settings have `epochs` and `selection`."""

    def make(values: Any, inputs: HeadInputs) -> Head:
        # Without `epochs`, which may be raised before a training resumes, and without empty
        # settings, so that checkpoints from before a setting existed stay valid.
        named = {n: value for n, value in asdict(values).items() if n != "epochs" and value != ()}
        chosen = task(values, inputs)
        if values.selection == "rsum":
            del named["selection"]
        elif values.selection == "map":
            chosen = replace(chosen, score="map")
        else:
            chosen = replace(chosen, last_epoch=True)
        recipes = [inputs.images.recipe_hash, inputs.captions.recipe_hash]
        return NetworkHead(chosen, [task.__module__, named, recipes])

    return HeadKind(settings, make)


def train_network(
    task: TrainingTask, pairs: Pairs, validation: HeldOut, options: FitOptions, identity: object
) -> tuple[nn.ModuleDict, History]:
    """Train a network; return it with the weights of the selected epoch, and one entry per epoch.

    Deterministic on the CPU of one machine: the same pairs, task and seed yield the same weights
    bit for bit, whatever the number of workers and interruptions. The global generators of torch
    are restored. `identity`, JSON values, is part of the fingerprint of the checkpoints, and should
    not include the number of epochs, which may be raised before a training resumes.

    An entry has `epoch` from 1, `loss` (mean over batches), `learning_rate` (of the first parameter
    group), the validation metrics, and `best` (1 for the selected epoch, otherwise 0).
    """
    if task.require:
        task.require(pairs)
    device = usable_device(options.device)
    checkpoints = None
    if options.work:
        checkpoints = Checkpoints(
            options.work, _fingerprint(pairs, validation, options, identity), device
        )
    with (
        _generators_of_our_own(device),
        _deterministic(device),
        workers_that_end(),
        _threads() as share_among,
    ):
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
        resumed = checkpoints is not None and checkpoints.resume(state, task.epochs)
        if not resumed:
            _begin(net, task, pairs, options)
        history = state.history
        # With few images ties are common, and the first of equals may be hardly trained.
        last_of_equals = len(validation.images) < _FEW_IMAGES
        if last_of_equals and not task.last_epoch:
            options.log(
                f"validation images are too few to distinguish epochs ({len(validation.images)}): "
                "on ties the last epoch is selected"
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
            if checkpoints:
                checkpoints.save(state)
            options.progress(len(history), task.epochs, 0)
        net.load_state_dict(state.best)
    best = _best(history, task, last_of_equals)
    return net.eval(), [{**entry, "best": float(at == best)} for at, entry in enumerate(history)]


def _begin(net: nn.ModuleDict, task: TrainingTask, pairs: Pairs, options: FitOptions) -> None:
    """Load the tensors of a trained head into a network, or prepare it from the training data."""
    if options.start is None:
        if task.prepare:
            task.prepare(net, pairs)
        return
    try:
        net.load_state_dict(dict(options.start))
    except RuntimeError as error:
        raise HeadError(
            "the head to start from has another architecture than this experiment; use the same "
            f"settings for both ({' '.join(str(error).split())})"
        ) from error


def _loader(
    task: TrainingTask,
    pairs: Pairs,
    rng: np.random.Generator,
    workers: int,
    device: torch.device,
    number: Callable[[], int],
) -> BatchLoader:
    """Return the batch loader; `number` returns the number of the epoch that starts."""
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
    return retrieval_figures(net, task.similarity, validation, device, with_map=task.score == "map")


def _best(history: History, task: TrainingTask, last_of_equals: bool) -> int:
    if task.last_epoch:
        return len(history) - 1
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
    # Not torch.manual_seed: it seeds the generators of all devices, not only those we restore.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def _threads() -> Iterator[Callable[[nn.Module], None]]:
    """Yield a function that sets the number of threads to suit a network's size."""
    # A second thread does not speed up small matrices, and slows them down when another program
    # uses a core. Sums depend on the thread count, which so depends on network and machine only.
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
    """Make torch deterministic on the CPU, where it is almost free."""
    # Otherwise the gradient of an indexing is summed in thread order. On a GPU some operations have
    # no deterministic version, so training there is only approximately repeatable.
    before = torch.are_deterministic_algorithms_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        # Deterministic mode would also fill every new tensor, a second write.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
