"""A dataset of drawn scenes, a small network, and a fine-tuning that kills itself."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pipeline.experiments.layout import Layout
from pipeline.finetuning.finetune import finetune
from pipeline.heads.catalogue import CaptionFeatures, Experiment, Finetuning
from pipeline.heads.trained_head import TrainedHead
from pipeline.progress import QUIET, Monitor, Progress

RECIPE, FIRST_LAYER = "timm:test_resnet", "layer3"
EPOCHS = 2

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


def tuned(folder: Path, out: str, monitor: Monitor = QUIET, workers: int = 0) -> TrainedHead:
    """Fine-tune the head `start` of the project in a folder."""
    layout = Layout.of("scenes", folder / "data")
    return finetune(
        layout.dataset,
        folder / out,
        experiment=TUNED,
        start=layout.head("start"),
        images=layout.features(RECIPE),
        captions=layout.text("token-ids"),
        workers=workers,
        monitor=monitor,
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    tuned(Path(sys.argv[1]), sys.argv[2], _Killer())
