"""The options that every training shares."""

from dataclasses import dataclass, replace

from pipeline.store.devices import AUTO, choose_precision
from pipeline.store.progress import QUIET, Monitor


@dataclass(frozen=True)
class TrainingOptions:
    """Options of training a head or a language model, apart from data and settings.

    Attributes
    ----------
    train_split, validation_split : str or None. Splits of the dataset, the second for model
        selection; None: by their usual names, see `pipeline.datasets.splits.USUAL_NAMES`.
    seed : int. Seed of all random numbers.
    max_epochs : int or None. Maximum number of epochs; None: as in the experiment.
    workers : int. Number of prefetch processes; results do not depend on it.
    device : str. A torch device, such as "cuda"; "auto" for the best of this machine.
    precision : str or None. "float32" or "bf16", for the matrix products of layers in training, or
        "auto" for the fastest of the device; None: as in the experiment. See
        `pipeline.heads.layers.products`.
    leave_out_failed : bool. Whether images with failed features are left out; otherwise an error.
    monitor : Monitor. Receives log lines, and progress by epoch.

    Examples
    --------
    >>> pipeline.TrainingOptions(seed=1, max_epochs=10, device="cuda", precision="bf16").max_epochs
    10
    """

    train_split: str | None = None
    validation_split: str | None = None
    seed: int = 0
    max_epochs: int | None = None
    workers: int = 0
    device: str = AUTO
    precision: str | None = None
    leave_out_failed: bool = False
    monitor: Monitor = QUIET

    def with_named_precision(self) -> "TrainingOptions":
        """Return the options with the precision by name: "auto" is resolved, and logged."""
        if self.precision is None:
            return self
        named = choose_precision(self.precision, self.device, self.monitor)
        return replace(self, precision=named)


DEFAULT_TRAINING = TrainingOptions()
"""The usual splits, seed 0, on the best device of this machine."""
