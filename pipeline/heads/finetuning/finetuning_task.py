"""A head's training task with the network of its image features in front."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from pipeline.heads.finetuning.network import LearningNetwork
from pipeline.heads.inputs.batches import Batch
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.training.task import TrainingTask

_NETWORK, _HEAD = "image.network.", "image.head."


class PictureTower(nn.Module):
    """Image tower: a network's features through a head's image side."""

    def __init__(self, network: LearningNetwork, head: nn.Module) -> None:
        """Compose a network and a head's image side."""
        super().__init__()
        self.network: LearningNetwork = network
        self.head: nn.Module = head

    def forward(self, windows: Tensor) -> Tensor:
        """Return the head's embeddings of (n, h, w, 3) float32 windows."""
        embeddings: Tensor = self.head(self.network(windows))
        return embeddings

    def nodes(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes and mask of a grid head, which the loss of `relational` reads."""
        nodes: tuple[Tensor, Tensor] = self.head.nodes(self.network(windows))  # type: ignore[operator]
        return nodes


def with_network(
    task: TrainingTask,
    learnt: dict[str, Tensor],
    network: Callable[[], LearningNetwork],
    learning_rate: float,
    on_images: Callable[[int], None],
) -> TrainingTask:
    """Return a head's task with a network in front of its image side.

    Loss, batches, clipping, schedule and optimiser are the head's own; the gradients of network
    and head are clipped together, as in the program of VSE++.

    Parameters
    ----------
    task : TrainingTask. Training task of the head.
    learnt : dict of str to Tensor. Tensors of the head to start from; `prepare` is not run.
    network : callable. Builds the network with its initial weights.
    learning_rate : float. Learning rate of the network.
    on_images : callable. Called with the number of images of each batch before its step.
    """

    def build(words: Features | None) -> nn.ModuleDict:
        net = task.build(None)
        net.load_state_dict(learnt)
        net["image"] = PictureTower(network(), net["image"])
        return net

    def optimiser(net: nn.ModuleDict) -> torch.optim.Optimizer:
        tower = net["image"]
        assert isinstance(tower, PictureTower)
        own = task.optimiser(nn.ModuleDict({**net, "image": tower.head}))
        learning = [p for p in tower.network.parameters() if p.requires_grad]
        own.add_param_group({"params": learning, "lr": learning_rate})
        return own

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        on_images(len(batch.images))
        return task.loss(net, batch, epoch, generator)

    return replace(task, build=build, optimiser=optimiser, loss=loss, prepare=None)


def divided(
    tensors: dict[str, Tensor], own_names: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of the head and of the network, each under its own names.

    Parameters
    ----------
    tensors : dict of str to Tensor. State dictionary of the modules built by `with_network`.
    own_names : tuple of str. Names in the network's own state dictionary, in order.
    """
    network = [tensor for name, tensor in tensors.items() if name.startswith(_NETWORK)]
    head = {
        name.replace(_HEAD, "image.", 1) if name.startswith(_HEAD) else name: tensor
        for name, tensor in tensors.items()
        if not name.startswith(_NETWORK)
    }
    return head, dict(zip(own_names, network, strict=True))
