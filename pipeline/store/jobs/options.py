"""Options shared by all families of features; each object is passed on whole."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pipeline.store.devices import AUTO, DTYPES, PRECISIONS, choose_device, choose_precision
from pipeline.store.errors import WrongUsage
from pipeline.store.option_fields import documented, name_of, option, require_bounds
from pipeline.store.progress import Monitor
from pipeline.store.workers.place import Place

ENGINES = ("fast", "reference")
"""Implementations of a network, equal up to rounding: `pipeline.images.engine` and its authors'."""


@documented
@dataclass(frozen=True)
class Selection:
    """Entries of a dataset that become rows.

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

    split: str | None = option(None, help="Use only this split.  [default: all]")
    limit: int | None = option(None, help="Use only the first N images.  [default: all]", least=1)
    leave_out_failed: bool = option(False, help="Skip images whose features failed.")

    def __post_init__(self) -> None:
        require_bounds(self)


@documented
@dataclass(frozen=True)
class Storage:
    """Storage format of a feature set, and which finished rows are recomputed.

    Without `rows_per_shard`, a finished output keeps its own. `update` keeps the dataset's order.
    An output of other features is moved aside to `NAME~<8 digits of its recipe hash>`, and back
    when these are requested again.

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

    dtype: str = option(
        "float32", name="storage", choices=DTYPES, help="Dtype of the stored features."
    )
    rows_per_shard: int | None = option(
        None,
        least=1,
        help="Rows per shard.  [default: as many as fit in 256 MiB, at most 65536]",
    )
    compress: bool = option(
        False, help="Compress features in small gzip chunks: smaller files, slower to read."
    )
    add: bool = option(
        False,
        recorded=False,
        help="Append rows of new images to a finished output, in new shards; existing rows stay. "
        "Prepare the dataset again first.",
    )
    update: bool = option(
        False,
        recorded=False,
        help="Make a finished output match the dataset: keep valid rows, compute new and changed "
        "ones, drop the others. An output of other options is moved aside.",
    )
    retry_failed: bool = option(
        False,
        recorded=False,
        help="Recompute the failed rows of a finished output.",
    )
    trust_stamps: bool = option(
        False,
        recorded=False,
        help="Do not reread files whose size and modification time match those of the last call "
        "with this option.",
    )

    def __post_init__(self) -> None:
        require_bounds(self)
        if self.add and self.update:
            raise WrongUsage("pass `add=True` or `update=True`, not both: an update also adds rows")


@documented
@dataclass(frozen=True)
class Compute:
    """How rows are computed: weights, precision, device and parallelism.

    Recipes and records state the precision that "auto" chose. The device "auto" is chosen on the
    machine that computes: with a scheduler, on each worker.

    Examples
    --------
    >>> compute = pipeline.Compute(device="cuda", batch_size=64, readers=8)
    >>> compute.gpu
    True
    >>> pipeline.extract(
    ...     "data/mine", "features/mine", recipe="resnet152-pool", compute=compute
    ... )  # doctest: +SKIP
    """

    weights: str | Path = option(
        "imagenet",
        help="Weights: imagenet, the PATH of a .pth, .pt, .safetensors or .caffemodel file or of a "
        "folder of timm or transformers, or random:SEED.",
    )
    weights_prefix: str | None = option(
        None,
        metavar="PREFIX",
        help="Use the weights whose names in the file begin with PREFIX, such as teacher.  "
        "[default: those that fit, if unambiguous]",
    )
    trained_on: str | None = option(
        None,
        metavar="NAME[, NAME...]",
        help="Datasets that the weights were trained on, recorded in the shards.  [default: those "
        "known for the recipe's own weights]",
    )
    codebook: str | Path | None = option(
        None,
        help="Codebook of sound words: loaded if the file exists, else fitted and saved.  "
        "[default: next to OUT, fitted on the training split]",
    )
    precision: str = option(
        "float32",
        choices=(*PRECISIONS, AUTO),
        help="Precision of the network; auto is bf16 if the device computes it fast, else float32.",
    )
    device: str = option(
        AUTO,
        help="Torch device, such as cpu or cuda:1; auto is the best of the machine that computes.",
    )
    engine: str = option(
        "fast",
        choices=ENGINES,
        help="Implementation of the network: fast, or reference, that of its package; both agree "
        "up to rounding.",
    )
    batch_size: int | None = option(
        None,
        least=1,
        help="Images per batch.  [default: 8, with ten crops 1; on a GPU 128 and 12]",
    )
    threads: int | None = option(
        None,
        least=1,
        recorded=False,
        help="Batches (or images) computed at a time, one core each.  [default: cores; on a GPU 2]",
    )
    readers: int | None = option(
        None,
        least=1,
        recorded=False,
        help="Prefetch threads that read and decode.  [default: cores, at most 8; with a GPU 16]",
    )

    def __post_init__(self) -> None:
        require_bounds(self)

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
    """Return the extraction options of `params.yaml`, by their keys, as `storage` and `compute`."""
    stored = {name_of(field): field.name for field in fields(Storage)}
    computed = {name: value for name, value in given.items() if name not in stored}
    return {
        "storage": Storage(**{stored[n]: value for n, value in given.items() if n in stored}),
        "compute": Compute(**computed),
    }
