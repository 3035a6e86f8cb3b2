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


class ImageTower(nn.Module):
    """A network's features through a head's image side."""

    def __init__(self, network: LearningNetwork, head: nn.Module) -> None:
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
    """Return a head's task, with the tensors `learnt`, with a network in front of its image side.

    The optimisation is the head's; gradients are clipped together, as in the program of VSE++.
    """

    def build(words: Features | None) -> nn.ModuleDict:
        net = task.build(None)
        net.load_state_dict(learnt)
        net["image"] = ImageTower(network(), net["image"])
        return net

    def optimiser(net: nn.ModuleDict) -> torch.optim.Optimizer:
        tower = net["image"]
        assert isinstance(tower, ImageTower)
        optimiser_of_both = task.optimiser(nn.ModuleDict({**net, "image": tower.head}))
        learning = [p for p in tower.network.parameters() if p.requires_grad]
        optimiser_of_both.add_param_group({"params": learning, "lr": learning_rate})
        return optimiser_of_both

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        on_images(len(batch.images))
        return task.loss(net, batch, epoch, generator)

    return replace(task, build=build, optimiser=optimiser, loss=loss, prepare=None)


def divided(
    tensors: dict[str, Tensor], network_names: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of the head and of the network, each under its own names."""
    network = [tensor for name, tensor in tensors.items() if name.startswith(_NETWORK)]
    head = {
        name.replace(_HEAD, "image.", 1) if name.startswith(_HEAD) else name: tensor
        for name, tensor in tensors.items()
        if not name.startswith(_NETWORK)
    }
    return head, dict(zip(network_names, network, strict=True))
