"""A small network, experiments that take it, and a fine-tuning that kills itself."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor, nn

from pipeline.experiments.layout import Layout
from pipeline.heads.finetuning.finetune import finetune
from pipeline.heads.head_types import CaptionFeatures, Experiment, Finetuning
from pipeline.heads.trained_head import TrainedHead
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.images.backbones.backbone import Backbone
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.recipes import RECIPES, Crop, Normalise, Recipe, Resize
from pipeline.store.progress import QUIET, Monitor, Progress
from tests.forks import exit_of, require_training_forks

RECIPE, GRID, FIRST_LAYER = "tiny", "tiny-grid", "late"
EPOCHS = 2


class Tiny(nn.Module):
    """Two convolutions with batch norms, and a classifier that no recipe reads."""

    def __init__(self) -> None:
        super().__init__()
        self.early = self._layer(3, 8)
        self.late = self._layer(8, 16)
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.late(self.early(x)).mean(dim=(2, 3)))
        return scores

    @staticmethod
    def _layer(inputs: int, outputs: int) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def add_tiny(patch: pytest.MonkeyPatch) -> None:
    """Put the small network and its recipe among the known ones."""
    recipe = Recipe(
        RECIPE, RECIPE, "none", Resize("squash", 32), Crop("none", 32),
        Normalise(255.0, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)), FIRST_LAYER, "none",
        "mean over cells", "none", (16,), "row, channel",
    )  # fmt: skip
    patch.setitem(RECIPES, RECIPE, recipe)
    grid = replace(
        recipe, name=GRID, pool="none", shape=(8, 8, 16), axes="row, cell_y, cell_x, channel"
    )
    patch.setitem(RECIPES, GRID, grid)
    patch.setitem(BACKBONES, RECIPE, Backbone(Tiny))


_WORDS = CaptionFeatures("token-ids", "token-ids")
_SETTINGS = {
    "dim": 8, "word_dim": 4, "similarity": "cosine", "l2_normalise": "both", "epochs": 1,
    "epoch": "images", "batch_size": 4,
}  # fmt: skip
START = Experiment("start", "vse", _SETTINGS, RECIPE, _WORDS)
TUNED = Experiment(
    "tuned",
    "vse",
    {**_SETTINGS, "epochs": EPOCHS},
    RECIPE,
    _WORDS,
    finetuning=Finetuning("start", learning_rate=0.01, first_layer=FIRST_LAYER, smallest_crop=0.3),
)


def tuned(
    folder: Path,
    out: str,
    monitor: Monitor = QUIET,
    workers: int = 0,
    precision: str | None = None,
    experiment: Experiment = TUNED,
) -> TrainedHead:
    """Fine-tune the head `start` of the project in a folder."""
    layout = Layout.of("scenes", folder / "data")
    return finetune(
        layout.dataset,
        folder / out,
        experiment=experiment,
        start=layout.head("start"),
        images=layout.features(RECIPE),
        captions=layout.text("token-ids"),
        training=TrainingOptions(workers=workers, precision=precision, monitor=monitor),
    )


class _Killer:
    """A monitor that kills its process once an image of the last epoch was seen."""

    def log(self, line: str) -> None:
        """Take no notice."""

    @contextmanager
    def progress(self, what: str, unit: str) -> Iterator[Progress]:
        def show(done: int, total: int, failed: int) -> None:
            if unit == "image" and done > total * (EPOCHS - 1) // EPOCHS:
                os.kill(os.getpid(), signal.SIGKILL)

        yield show


def killed(folder: Path, out: str) -> int:
    """Return the signal that ended a process of its own that fine-tuned as `tuned` does."""
    require_training_forks()
    return -exit_of(tuned, folder, out, _Killer())
