"""The one head over a torch network, whatever its design."""

import torch
from torch import Tensor, nn

from pipeline.heads.base import History, Run
from pipeline.heads.data.pairs import Pairs
from pipeline.heads.data.rows import Features, Rows
from pipeline.heads.training.task import Design
from pipeline.heads.training.trainer import train as run_training
from pipeline.heads.training.validation import embed_rows, require_fitted


class NetworkHead:
    """A trained head. Its embeddings of some rows do not depend on what it embedded before.

    Attributes
    ----------
    design : all that makes it differ from another.
    similarity : the design's.
    """

    def __init__(self, design: Design, identity: object = None) -> None:
        """Take a design and, for checkpoints, JSON values that name it."""
        self.design = design
        self.similarity = design.similarity
        self._identity = identity
        self._net: nn.ModuleDict | None = None
        self._device = torch.device("cpu")

    def fit(self, train: Pairs, validation: Pairs, run: Run) -> History:
        """Train, and embed with the weights of the best epoch; see `trainer.train`.

        Raises
        ------
        HeadError
            The training data are refused, features are not finite, or the training diverged.
        """
        net, history = run_training(self.design, train, validation, run, self._identity)
        self._net, self._device = net, torch.device(run.device)
        return history

    def embed_images(self, rows: Rows) -> Features:
        """Return what the module "image" makes of each row."""
        return embed_rows(require_fitted(self._net)["image"], rows, self._device)

    def embed_captions(self, rows: Rows) -> Features:
        """Return what the module "caption" makes of each row."""
        return embed_rows(require_fitted(self._net)["caption"], rows, self._device)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, statistics and buffers of all modules."""
        return dict(require_fitted(self._net).state_dict())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave; on the CPU."""
        with torch.random.fork_rng(devices=[]):
            net = self.design.build(None)
        net.load_state_dict(tensors)
        self._net, self._device = net.eval(), torch.device("cpu")
