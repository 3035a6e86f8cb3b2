"""The options that every training shares."""

from dataclasses import dataclass, field, replace

from pipeline.store.devices import AUTO, choose_precision
from pipeline.store.option_fields import documented, option
from pipeline.store.progress import QUIET, Monitor


@documented
@dataclass(frozen=True)
class TrainingOptions:
    """Options of training a head or a language model, apart from data and settings.

    A split None is the first of `pipeline.datasets.splits.USUAL_NAMES` that the dataset has;
    `max_epochs` and `precision` None are the experiment's. `pipeline.heads.layers.products` applies
    the precision.

    Examples
    --------
    >>> pipeline.TrainingOptions(seed=1, max_epochs=10, device="cuda", precision="bf16").max_epochs
    10
    """

    train_split: str | None = option(
        None, help="Training split.  [default: as in params.yaml, or train]"
    )
    validation_split: str | None = option(
        None,
        help="Validation split for model selection.  [default: as in params.yaml, else val or dev]",
    )
    seed: int = option(
        0, least=0, help="Seed of all random numbers.  [default: as in params.yaml, or 0]"
    )
    max_epochs: int | None = option(
        None,
        least=1,
        help="Maximum number of epochs.  [default: as in params.yaml and the experiment]",
    )
    workers: int = option(
        0,
        least=0,
        recorded=False,
        help="Prefetch processes that load batches; results do not depend on their number.",
    )
    device: str = option(
        AUTO, help="Torch device, such as cpu or cuda:1; auto is the best of this machine."
    )
    precision: str | None = option(
        None,
        choices=("float32", "bf16", AUTO),
        help="Precision of the matrix products in training, also of a fine-tuned image network; "
        "auto is bf16 if the device computes it fast, else float32.  [default: that of the "
        "experiment, or float32]",
    )
    leave_out_failed: bool = option(False, help="Skip images whose features failed.")
    # Receives log lines, and progress by epoch.
    monitor: Monitor = field(default=QUIET, metadata={"recorded": False})

    def with_named_precision(self) -> "TrainingOptions":
        """Return the options with the precision by name: "auto" is resolved, and logged."""
        if self.precision is None:
            return self
        named = choose_precision(self.precision, self.device, self.monitor)
        return replace(self, precision=named)


DEFAULT_TRAINING = TrainingOptions()
"""The usual splits, seed 0, on the best device of this machine."""
