"""The training loop: batches in, the weights of the best epoch out."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from pipeline.heads.interface import History, Progress
from pipeline.heads.pairs import HeadError


def train(
    net: nn.Module,
    epochs: int,
    batches: Callable[[], Iterable[Tensor]],
    loss_of: Callable[[Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    score: Callable[[], dict[str, float]],
    progress: Progress,
) -> History:
    """Train a network and leave it with the weights of its best epoch.

    Parameters
    ----------
    net : what is trained; in training mode for `loss_of`, in evaluation mode for `score`.
    epochs : how often `batches` is run through.
    batches : gives the batches of a new epoch.
    loss_of : from a batch to a scalar.
    optimiser, schedule : the schedule steps once an epoch.
    score : figures on the validation split; "rsum" chooses the epoch, the first of equals wins.
    progress : called after every epoch.

    Returns
    -------
    History
        An entry an epoch: `epoch` from 1, `loss` (mean over batches), `learning_rate`, the
        figures of `score`, and `best` (1 for the chosen epoch).

    Raises
    ------
    HeadError
        The loss or a weight is not finite.
    """
    history: History = []
    best = -1
    kept: dict[str, Tensor] = {}
    progress(0, epochs, 0)
    for epoch in range(epochs):
        net.train()
        losses = []
        learning_rate = float(optimiser.param_groups[0]["lr"])
        for batch in batches():
            loss = loss_of(batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        schedule.step()
        values = [*losses, *(float(p.detach().abs().sum()) for p in net.parameters())]
        if not all(map(math.isfinite, values)):
            raise HeadError(
                f"training diverged in epoch {epoch + 1}: the loss or a weight is not finite; "
                "lower the learning rate, or check the features for outliers"
            )

        net.eval()
        figures = score()
        history.append(
            {
                "epoch": epoch + 1,
                "loss": sum(losses) / len(losses),
                "learning_rate": learning_rate,
                **figures,
            }
        )
        if best < 0 or figures["rsum"] > history[best]["rsum"]:
            best = epoch
            kept = {name: value.detach().clone() for name, value in net.state_dict().items()}
        progress(epoch + 1, epochs, 0)
    net.load_state_dict(kept)
    for epoch, entry in enumerate(history):
        entry["best"] = float(epoch == best)
    return history
