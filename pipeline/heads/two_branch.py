"""The two-branch network with bi-directional ranking and structure-preserving constraints.

Wang, Li & Lazebnik 2016. Each branch: linear, ReLU, dropout, linear, batch norm, L2. The
defaults are the paper's for Fisher vectors and tf-idf; for mean word vectors it uses hidden
1024 and dim 256. Deviations: the inputs are centred and scaled (one mean vector and one scale a
side, of the training split), since batch norm comes only after the last layer and our features
have other ranges than the paper's fc7 and Fisher vectors; for the reduction of the loss see
`pipeline.heads.losses.top_violations`; the epoch is chosen by rsum on the validation split,
where the paper says "convergence within 30 epochs on average".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads.interface import History, Progress, require_vectors, setting
from pipeline.heads.losses import structure_preserving_loss
from pipeline.heads.pairs import Features, HeadError, Pairs
from pipeline.heads.sampling import batches_with_siblings
from pipeline.heads.trainer import train as run_training
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import recall_table

_EMBED_ROWS = 4096


@dataclass(frozen=True)
class TwoBranchSettings:
    """Settings of section 3.1; the last three name the terms of eq. (5).

    hidden, dim : outputs of the two linear layers of each branch.
    dropout : probability, after the ReLU.
    epochs, batch_size : an epoch is every pair once; a batch counts pairs before siblings.
    learning_rate, momentum, weight_decay : of SGD.
    decay_every, decay : the learning rate is multiplied by `decay` every so many epochs.
    margin, top : m, and K, the violations that count for each positive pair.
    text_to_image, structure : lambda_1 and lambda_3.
    """

    hidden: int = setting(2048, at_least=1)
    dim: int = setting(512, at_least=1)
    dropout: float = setting(0.5, below=1)
    epochs: int = setting(30, at_least=1)
    batch_size: int = setting(1500, at_least=1)
    learning_rate: float = setting(0.1)
    momentum: float = setting(0.9, below=1)
    weight_decay: float = setting(5e-4)
    decay_every: int = setting(10, at_least=1)
    decay: float = setting(0.1)
    margin: float = setting(0.1)
    top: int = setting(50, at_least=1)
    text_to_image: float = setting(2.0)
    structure: float = setting(0.2)


class Branch(nn.Module):
    """One side: standardise, linear, ReLU, dropout, linear, batch norm, L2."""

    def __init__(self, inputs: int, hidden: int, dim: int, dropout: float) -> None:
        """Layers with torch's default initialisation, drawn from torch's global generator."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(()))
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, dim),
            nn.BatchNorm1d(dim),
        )

    def standardise_as(self, features: Features) -> None:
        """Take the mean vector and the one overall scale of the training features."""
        mean = features.mean(axis=0, dtype=np.float64)
        scale = float(np.sqrt(np.square(features - mean).mean()))
        self.mean = torch.from_numpy(mean).float()
        self.scale = torch.tensor(scale or 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, dim) unit vectors of (n, inputs)."""
        return F.normalize(self.layers((x - self.mean) / self.scale), dim=1)


class TwoBranchHead:
    """Two branches into one space of unit vectors."""

    similarity = "cosine"

    def __init__(
        self,
        settings: TwoBranchSettings,
        image_shape: tuple[int, ...],
        caption_shape: tuple[int, ...],
    ) -> None:
        """Take the shapes of one row of each side.

        Raises
        ------
        HeadError
            A side has no vectors.
        """
        self.settings = settings
        self._image_dim = require_vectors("two-branch", "image", image_shape)
        self._caption_dim = require_vectors("two-branch", "caption", caption_shape)
        self._build(0)

    def fit(self, train: Pairs, validation: Pairs, seed: int, progress: Progress) -> History:
        """Train with SGD; the same seed on the same machine gives the same weights.

        Raises
        ------
        HeadError
            Fewer than two training images (there would be no negative), or a diverging loss.
        """
        if len(train.image_ids) < 2:
            raise HeadError(
                f"{len(train.image_ids)} training image found; at least 2 are needed, so that "
                "every caption has a negative"
            )
        settings = self.settings
        rng = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            self._build(seed)
            torch.manual_seed(seed)
            self._net["image"].standardise_as(train.images)  # type: ignore[operator]
            self._net["caption"].standardise_as(train.captions)  # type: ignore[operator]
            optimiser = torch.optim.SGD(
                self._net.parameters(),
                settings.learning_rate,
                settings.momentum,
                weight_decay=settings.weight_decay,
            )
            schedule = torch.optim.lr_scheduler.StepLR(
                optimiser, settings.decay_every, settings.decay
            )

            def batches() -> Iterator[Tensor]:
                for rows in batches_with_siblings(train.owner, settings.batch_size, rng):
                    yield torch.from_numpy(rows)

            return run_training(
                self._net,
                settings.epochs,
                batches,
                lambda rows: self._loss(train, rows),
                optimiser,
                schedule,
                lambda: self._score(validation),
                progress,
            )

    def embed_images(self, features: Features) -> Features:
        """Return (images, dim) unit vectors."""
        return self._embed("image", features)

    def embed_captions(self, features: Features) -> Features:
        """Return (captions, dim) unit vectors."""
        return self._embed("caption", features)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights, statistics and input scales of both branches."""
        return dict(self._net.state_dict())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._net.load_state_dict(tensors)
        self._net.eval()

    def _build(self, seed: int) -> None:
        s = self.settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._net = nn.ModuleDict(
                {
                    "image": Branch(self._image_dim, s.hidden, s.dim, s.dropout),
                    "caption": Branch(self._caption_dim, s.hidden, s.dim, s.dropout),
                }
            ).eval()

    def _loss(self, train: Pairs, rows: Tensor) -> Tensor:
        owner = torch.from_numpy(train.owner)[rows]
        images, own = torch.unique(owner, return_inverse=True)
        return structure_preserving_loss(
            self._net["image"](torch.from_numpy(train.images[images.numpy()])),
            self._net["caption"](torch.from_numpy(train.captions[rows.numpy()])),
            own,
            self.settings.margin,
            self.settings.top,
            self.settings.text_to_image,
            self.settings.structure,
        )

    def _score(self, validation: Pairs) -> dict[str, float]:
        table = recall_table(
            Embeddings(
                validation.image_ids,
                self.embed_images(validation.images),
                validation.caption_ids,
                validation.caption_image_ids,
                self.embed_captions(validation.captions),
                self.similarity,
                {},
            )
        )
        return {name: table[name] for name in ("image_to_text_r1", "text_to_image_r1", "rsum")}

    @torch.inference_mode()
    def _embed(self, side: str, features: Features) -> Features:
        self._net.eval()
        chunks = [
            self._net[side](torch.from_numpy(features[start : start + _EMBED_ROWS])).numpy()
            for start in range(0, len(features), _EMBED_ROWS)
        ]
        return np.concatenate(chunks)
