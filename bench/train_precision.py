"""Training in float32 and in bf16: CPU seconds per epoch, and rsum over seeds.

    python -m bench.train_precision EXPERIMENT... --dataset data/flickr8k [--epochs 2] [--seeds 1]
    PYTHONPATH=CHECKOUT python bench/train_precision.py EXPERIMENT... --precisions float32

Trains each experiment at the small size on features and captions of `pipeline run`, alternately in
both precisions, for a limited number of epochs. Prints one row per precision: seconds per epoch
(median over epochs and seeds), the part in validation, which is float32 in both, and the validation
rsum of the selected epochs (mean, minimum and maximum over seeds). The second form measures the
library of another checkout, such as an earlier commit without bf16.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from pipeline.experiments.layout import Layout
from pipeline.heads.experiments import resolve_experiment
from pipeline.heads.fit import fit
from pipeline.heads.training import trainer
from pipeline.heads.training.training_options import TrainingOptions


class Clock:
    """CPU seconds of each epoch and of each validation."""

    def __init__(self) -> None:
        """Time the validations of all further trainings."""
        self.epochs: list[float] = []
        self.validations: list[float] = []
        self._started: float | None = None
        figures = trainer._figures

        def timed(*given: Any) -> dict[str, float]:
            before = time.process_time()
            found = figures(*given)
            self.validations.append(time.process_time() - before)
            return found

        trainer._figures = timed  # type: ignore[assignment]

    def progress(self, what: str, unit: str) -> "Clock":
        """Return the receiver of the number of finished epochs."""
        self._started = None
        return self

    def log(self, line: str) -> None:
        """Discard a line."""

    def __enter__(self) -> "Clock":
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def __call__(self, done: int, total: int, failed: int) -> None:
        """Record the end of an epoch."""
        now = time.process_time()
        if self._started is not None:
            self.epochs.append(now - self._started)
        self._started = now


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--dataset", type=Path, default=Path("data/flickr8k"))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"])
    options = parser.parse_args()
    layout = Layout(options.dataset, options.dataset.parent)
    clock = Clock()
    print("| experiment | precision | s an epoch | validation | ratio | rsum |")
    print("|---|---|---:|---:|---:|---:|", flush=True)
    for name in options.experiments:
        experiment = resolve_experiment(name)
        vectors = layout.named_vectors(experiment.word_vectors)
        experiment = replace(experiment, word_vectors=vectors)
        seconds: dict[str, float] = {}
        for precision in options.precisions:
            # Commits before bf16 have no such option.
            chosen: dict[str, Any] = {} if precision == "float32" else {"precision": precision}
            clock.epochs, clock.validations, found = [], [], []
            for seed in range(options.seeds):
                training = TrainingOptions(
                    seed=seed, max_epochs=options.epochs, monitor=clock, **chosen
                )
                with tempfile.TemporaryDirectory() as out:
                    trained = fit(
                        layout.dataset,
                        Path(out) / name,
                        experiment=experiment,
                        images=layout.features(experiment.images),
                        captions=layout.text(experiment.captions.name),
                        training=training,
                    )
                found.append(trained.chosen["rsum"])
            seconds[precision] = median(clock.epochs)
            ratio = seconds[options.precisions[0]] / seconds[precision]
            print(
                f"| `{name}` | {precision} | {seconds[precision]:.2f} | "
                f"{median(clock.validations):.2f} | {ratio:.2f} "
                f"| {mean(found):.1f} ({min(found):.1f} to {max(found):.1f}) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
