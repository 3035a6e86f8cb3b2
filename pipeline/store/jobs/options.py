"""Options shared by all families of features; each object is passed on whole."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pipeline.store.devices import AUTO, choose_device, choose_precision
from pipeline.store.errors import WrongUsage
from pipeline.store.progress import Monitor
from pipeline.store.workers.place import Place


def _require_counts(options: object) -> None:
    """Raise if an integer field of an option object is below 1."""
    for field in fields(options):  # type: ignore[arg-type]
        value = getattr(options, field.name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise WrongUsage(f"{field.name} is {value}, expected at least 1")


@dataclass(frozen=True)
class Selection:
    """Entries of a dataset that become rows.

    Attributes
    ----------
    split : str or None. Only entries of this split; None: all.
    limit : int or None. Only the first entries, at most this many; None: all.
    leave_out_failed : bool. For embeddings: skip images whose features failed instead of raising.

    Examples
    --------
    >>> pipeline.extract(
    ...     "data/mine",
    ...     "features/test",
    ...     recipe="efficientnet-lite0-pool",
    ...     select=pipeline.Selection(split="test"),
    ... ).rows
    4
    """

    split: str | None = None
    limit: int | None = None
    leave_out_failed: bool = False

    def __post_init__(self) -> None:
        _require_counts(self)


@dataclass(frozen=True)
class Storage:
    """Storage format of a feature set, and which finished rows are recomputed.

    Attributes
    ----------
    dtype : str. "float32" or "float16".
    rows_per_shard : int or None. None: as in the existing output, or shards of up to 1 GiB.
    compress : bool. Small gzip chunks: smaller, slower to read.
    add : bool. Append rows that are missing in a finished output, in new shards.
    update : bool. Synchronise a finished output with the dataset, in the dataset's order: rows with
        unchanged sources are kept, others computed, removed ones dropped. An output of other
        features is moved aside to `NAME~<8 digits of its recipe hash>`, and moved back when it is
        requested again.
    retry_failed : bool. Recompute the failed rows of a finished output.
    trust_stamps : bool. Do not reread files whose size and modification time match those of the
        last call with this option.

    Examples
    --------
    >>> pipeline.extract(
    ...     "data/mine",
    ...     "features/half",
    ...     recipe="efficientnet-lite0-pool",
    ...     storage=pipeline.Storage(dtype="float16", compress=True),
    ... ).header.dtype
    'float16'
    """

    dtype: str = "float32"
    rows_per_shard: int | None = None
    compress: bool = False
    add: bool = False
    update: bool = False
    retry_failed: bool = False
    trust_stamps: bool = False

    def __post_init__(self) -> None:
        _require_counts(self)
        if self.add and self.update:
            raise WrongUsage("add and update exclude each other: an update also adds rows")


@dataclass(frozen=True)
class Compute:
    """How rows are computed: weights, precision, device and parallelism.

    Attributes
    ----------
    weights : str or Path. "imagenet" for the recipe's own, "random:SEED", or a path.
    trained_on : str or None. Comma-separated training datasets of the weights, recorded in the
        header; changes no feature. None: as the recipe records for its own weights.
    codebook : path or None. Codebook file for bags of audio words: loaded if it exists, else fitted
        and saved. None: next to the output.
    precision : str. Precision of the network, one of `pipeline.images.recipes.PRECISIONS`; "auto":
        the fastest of this machine's device. Recipes and records have the chosen one.
    device : str. A torch device, such as "cpu" or "cuda"; "auto": the best of the machine that
        computes, which is the worker's on a scheduler.
    engine : str. One of `pipeline.images.engine.ENGINES`; they agree up to rounding.
    batch_size : int or None. Images, frames or clips per batch; None: by recipe and device.
    threads : int or None. Concurrent batches, images or files; None: one per core.
    readers : int or None. Prefetch threads that read and decode; None: one per core, at most 8.

    Examples
    --------
    >>> compute = pipeline.Compute(device="cuda", batch_size=64, readers=8)
    >>> compute.gpu
    True
    >>> pipeline.extract(
    ...     "data/mine", "features/mine", recipe="resnet152-pool", compute=compute
    ... )  # doctest: +SKIP
    """

    weights: str | Path = "imagenet"
    trained_on: str | None = None
    codebook: str | Path | None = None
    precision: str = "float32"
    device: str = AUTO
    engine: str = "fast"
    batch_size: int | None = None
    threads: int | None = None
    readers: int | None = None

    def __post_init__(self) -> None:
        _require_counts(self)

    def on(self, place: Place, monitor: Monitor) -> "Compute":
        """Return a copy with "auto" resolved, unless workers of a scheduler compute."""
        named = self.with_named_precision(place, monitor)
        if place.scheduler is not None:
            return named
        return replace(named, device=choose_device(self.device, monitor))

    def with_named_precision(self, place: Place, monitor: Monitor) -> "Compute":
        """Return a copy with the precision "auto" resolved, and logged."""
        if self.precision == AUTO and place.scheduler is not None:
            raise WrongUsage(
                f"precision {AUTO!r} depends on this machine's device, but the workers of "
                f"{place.scheduler} compute the rows; name a precision, such as 'bf16' or 'float32'"
            )
        return replace(self, precision=choose_precision(self.precision, self.device, monitor))

    @property
    def gpu(self) -> bool:
        """Whether the device is a CUDA GPU."""
        return self.device.partition(":")[0] == "cuda"

    @property
    def named_weights(self) -> str:
        """Weights with an absolute path, valid in every working directory."""
        text = str(self.weights)
        if text == "imagenet" or text.startswith("random:"):
            return text
        return str(Path(text).absolute())


def extract_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extraction options of `params.yaml` as `storage` and `compute`."""
    # They have the names of the command's options, where "storage" is the dtype of the rows.
    named = {"dtype" if name == "storage" else name: value for name, value in given.items()}
    stored = {field.name for field in fields(Storage)}
    return {
        "storage": Storage(**{n: value for n, value in named.items() if n in stored}),
        "compute": Compute(**{n: value for n, value in named.items() if n not in stored}),
    }
