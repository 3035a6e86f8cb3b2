"""Options that all families of features share; each object is passed whole to where it is used."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pipeline.cluster.place import Place
from pipeline.devices import AUTO, choose_device, choose_precision
from pipeline.errors import WrongUsage
from pipeline.progress import Monitor
from pipeline.recipes import PRECISIONS


def _require_counts(options: object) -> None:
    """Refuse integers below 1 in the fields of an option object.

    Raises
    ------
    WrongUsage
    """
    for field in fields(options):  # type: ignore[arg-type]
        value = getattr(options, field.name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise WrongUsage(f"{field.name} is {value}; it must be at least 1")


@dataclass(frozen=True)
class Selection:
    """Which entries of a dataset become rows.

    Attributes
    ----------
    split : only the entries of this split; None: all.
    limit : only the first entries, this many; None: all.
    leave_out_failed : of embeddings: leave out images whose features failed, which are refused
        otherwise.
    """

    split: str | None = None
    limit: int | None = None
    leave_out_failed: bool = False

    def __post_init__(self) -> None:
        _require_counts(self)


@dataclass(frozen=True)
class Storage:
    """How a feature set is stored, and what of a finished one is computed again.

    Attributes
    ----------
    dtype : of the stored rows, "float32" or "float16".
    rows_per_shard : None: as the output has it, or what makes shards of up to 1 GiB.
    compress : gzip in small chunks: smaller, slower to read.
    add : append rows that the dataset has and a finished output lacks, in new shards.
    update : make a finished output what the dataset is now: rows of ids whose origin is as before
        are kept, others computed, those that the dataset no longer has dropped, all in the
        dataset's order. One of other features is moved aside to `NAME~<8 digits of its recipe
        hash>`, and moved back when it is asked for again.
    retry_failed : compute the failed rows of a finished output again.
    trust_stamps : do not read files again whose size and modification time are those of the last
        call with this option.
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
            raise WrongUsage("give either add or update: an update adds rows, too, in their order")


@dataclass(frozen=True)
class Compute:
    """How rows are computed: the network's weights and arithmetic, and how much runs at once.

    Attributes
    ----------
    weights : "imagenet" for the recipe's own, "random:SEED", or the path of a file.
    trained_on : datasets that the weights were trained on, for the shards' header; names separated
        by commas. None: as the recipe records of its own weights. It changes no feature.
    codebook : file of the codebook of bags of sound words: read from there, or fitted and stored
        there. None: next to the output.
    precision : arithmetic of the network, of `pipeline.recipes.PRECISIONS`; "auto" for the fastest
        of this machine's device, by name in recipes and records.
    device : a torch device, such as "cpu" or "cuda"; "auto" for the best of the machine that
        computes, which is the worker's on a scheduler.
    engine : of `pipeline.images.engine.ENGINES`; their features agree up to rounding.
    batch_size : images, frames or clips in a batch; None: what suits recipe and device.
    threads : batches (or images, or files) in work at once; None: one for each core.
    readers : threads that read and decode ahead; None: one for each core, at most 8.
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
        """Return these options with "auto" resolved, unless a scheduler's workers compute.

        Raises
        ------
        WrongUsage
            See `with_named_precision`.
        """
        found = self.with_named_precision(place, monitor)
        if place.scheduler is not None:
            return found
        return replace(found, device=choose_device(self.device, monitor))

    def with_named_precision(self, place: Place, monitor: Monitor) -> "Compute":
        """Return these options with the precision by name: "auto" is resolved, and logged.

        Raises
        ------
        WrongUsage
            It is "auto", and a scheduler's workers compute.
        """
        if self.precision == AUTO and place.scheduler is not None:
            raise WrongUsage(
                f"precision {AUTO!r} is that of this machine's device, and the workers of "
                f"{place.scheduler} compute; name one of {', '.join(PRECISIONS)}"
            )
        return replace(self, precision=choose_precision(self.precision, self.device, monitor))

    @property
    def gpu(self) -> bool:
        """Whether the device is a GPU of CUDA."""
        return self.device.partition(":")[0] == "cuda"

    @property
    def named_weights(self) -> str:
        """The weights as text that every working directory understands: paths are absolute."""
        text = str(self.weights)
        if text == "imagenet" or text.startswith("random:"):
            return text
        return str(Path(text).absolute())


def extract_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of extraction in `params.yaml` as `storage` and `compute`.

    Parameters
    ----------
    given : by the names of the command's options; "storage" is the dtype of the rows.
    """
    named = {"dtype" if name == "storage" else name: value for name, value in given.items()}
    stored = {field.name for field in fields(Storage)}
    return {
        "storage": Storage(**{n: value for n, value in named.items() if n in stored}),
        "compute": Compute(**{n: value for n, value in named.items() if n not in stored}),
    }
