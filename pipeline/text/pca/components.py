"""Principal components of the rows of an encoder: fitted out of core, kept in one file."""

import hashlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from pipeline.errors import PipelineError
from pipeline.files import created_by, require_folder
from pipeline.hashing import recipe_hash, sha256_of_json, sha256_of_texts
from pipeline.networks.tensor_file import read_metadata, read_tensors, write_tensors
from pipeline.progress import Progress, no_progress
from pipeline.shards.resume.locking import only_writer
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.pca.covariance import Covariance
from pipeline.text.pca.eigenvectors import eigenvectors_memory, largest_eigenvectors
from pipeline.wording import counted

_CHUNK = 2048  # captions multiplied at once
_LOCK = "fit.lock"  # beside the unfinished work
_KEY = "projection"  # of the metadata in the file


class PcaError(PipelineError):
    """Principal components cannot be fitted or read, or they belong to another encoder."""


@dataclass(frozen=True)
class PcaMetadata:
    """What principal components were fitted to.

    Attributes
    ----------
    encoder, encoder_hash : name and recipe hash of the encoder whose rows it was fitted to.
    captions, captions_sha256 : how many it was fitted to, and the SHA-256 of the canonical JSON
        of the list of them.
    device : where the products were taken.
    total_variance : the sum of all eigenvalues of the covariance.
    created_by : software and versions.
    requested : how many components were requested, where the captions or the numbers in a row
        allowed fewer; None where all of them were fitted.
    """

    encoder: str
    encoder_hash: str
    captions: int
    captions_sha256: str
    device: str
    total_variance: float
    created_by: str
    requested: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; `requested` only where fewer were fitted."""
        value = asdict(self)
        if self.requested is None:
            del value["requested"]
        return value


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """Principal components of the rows of an encoder.

    Attributes
    ----------
    metadata : what they were fitted to.
    mean : (D,) float32, taken off a row first.
    components : (D, dim) float32, columns at norm 1, the largest eigenvalue first. The number of
        largest absolute value of a column is positive.
    eigenvalues : (dim,) float64, the variances along the components, falling; at least 0.
    """

    metadata: PcaMetadata
    mean: npt.NDArray[np.float32]
    components: npt.NDArray[np.float32]
    eigenvalues: npt.NDArray[np.float64]

    @property
    def dim(self) -> int:
        """How many components there are."""
        return len(self.eigenvalues)

    @property
    def explained(self) -> float:
        """The share of the variance that lies along the components, 0 to 1; 0 if there is none."""
        total = self.metadata.total_variance
        return float(self.eigenvalues.sum() / total) if total else 0.0

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of mean and components."""
        digest = hashlib.sha256(f"{self.components.shape}".encode())
        for array in (self.mean, self.components):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def check(self, encoder: CaptionEncoder) -> None:
        """Refuse an encoder other than the one that the components were fitted to.

        Raises
        ------
        PcaError
        """
        if self.metadata.encoder_hash != _hash_of(encoder):
            raise PcaError(
                f"the principal components were fitted to {self.metadata.encoder!r} (recipe hash "
                f"{self.metadata.encoder_hash}), but {encoder.name!r} (recipe hash "
                f"{_hash_of(encoder)}) is given; give that encoder with the settings it had, or "
                "fit components to this one"
            )

    def save(self, path: Path) -> None:
        """Write one `.safetensors` file, whole or not at all; equal components, equal bytes."""
        tensors = {name: array for name, array in vars(self).items() if name in _TENSORS}
        write_tensors(path, tensors, _KEY, self.metadata.to_json())


_TENSORS = {"mean": np.float32, "components": np.float32, "eigenvalues": np.float64}


def load_pca(path: Path, encoder: CaptionEncoder) -> PrincipalComponents:
    """Read what `PrincipalComponents.save` wrote.

    Parameters
    ----------
    path : the `.safetensors` file.
    encoder : the encoder that it will be used with.

    Raises
    ------
    PcaError
        The file is missing or damaged, or was fitted to another encoder.
    """
    if not path.is_file():
        raise PcaError(f"{path} not found; fit principal components first")
    try:
        tensors = read_tensors(path, _TENSORS)
        found = PrincipalComponents(PcaMetadata(**read_metadata(path, _KEY)), **tensors)
        expected = (len(found.mean), len(found.eigenvalues))
        types = {name: tensors[name].dtype.type for name in _TENSORS}
        if found.components.shape != expected or types != _TENSORS:
            raise ValueError(f"components of shape {found.components.shape}, not {expected}")
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise PcaError(
            f"{path} has no principal components or is damaged ({error}); fit them again"
        ) from error
    found.check(encoder)
    return found


def require_two(captions: int) -> None:
    """Check that there are enough captions for a principal component.

    Raises
    ------
    PcaError
    """
    if captions < 2:
        raise PcaError(
            f"{counted(captions, 'training caption')} found; principal components need at least 2, "
            "since one row has no variance: add captions to the training split, or encode "
            "without `pca`"
        )


def components_of(captions: int, width: int, requested: int) -> int:
    """Return how many components rows of `width` numbers of some captions have, at most requested.

    The centred rows of n captions span n - 1 dimensions.
    """
    return min(requested, captions - 1, width)


def fit_memory(width: int, dim: int) -> int:
    """Return the bytes that fitting `dim` components to rows of `width` numbers needs at most.

    However many captions there are; the encoder's own memory is not counted.
    """
    sums = Covariance.memory(width) + 4 * width * _CHUNK
    unpacking = 8 * width * width + Covariance.disk(width)
    return max(sums, unpacking, eigenvectors_memory(width, dim))


def fit_disk(width: int) -> int:
    """Return the bytes that the work file of a fit needs while it is replaced by a newer one."""
    return 2 * Covariance.disk(width)


def fit_pca(
    encoder: CaptionEncoder,
    texts: Sequence[str],
    dim: int,
    work: Path,
    *,
    device: str = "cpu",
    checkpoint_seconds: float = 120.0,
    progress: Progress = no_progress,
) -> PrincipalComponents:
    """Fit principal components to the rows of an encoder in one pass over the captions.

    The covariance is summed as `Covariance` does, its largest eigenvalues are found in float64.
    From time to time the sums are put down in the work folder; called again after an interruption
    with the same encoder, captions and device, the fit goes on from there, whatever `dim`, and
    gives the same bytes as one that was never interrupted. At the end the work file is removed.

    Parameters
    ----------
    encoder : of rows of D numbers.
    texts : the training captions, at least 2.
    dim : how many components, at least 1; fewer are fitted where `components_of` says so, and the
        metadata then have the requested number as well.
    work : the folder of unfinished work; made if it is missing. An empty lock file stays in it.
    device : where the products are taken: "cpu", or a device of torch such as "cuda". The last
        bits differ between devices.
    checkpoint_seconds : how often the sums are put down; they are too once the pass is done.
    progress : called with captions done, captions in all, and 0.

    Returns
    -------
    PrincipalComponents

    Raises
    ------
    PcaError
        Fewer than 2 captions, `dim` below 1, or too little room on the disk.
    DeviceError
        The device is not there.
    OutputError
        The work folder cannot be written to.
    CovarianceError
        The work file is damaged, or a row is not finite.
    ShardError
        Another process is fitting in the same work folder.
    """
    if dim < 1:
        raise PcaError(f"{dim} principal components were requested, expected 1 or more")
    require_two(len(texts))
    possible = components_of(len(texts), encoder.dim, dim)
    if device != "cpu":
        # Here, since torch takes seconds to import and numpy does the products of a processor.
        from pipeline.devices import usable_device

        usable_device(device)
    _require_room(work, encoder.dim)
    inputs = {
        "encoder_hash": _hash_of(encoder),
        "captions_sha256": sha256_of_texts(texts),
        "device": device,
        "created_by": created_by("numpy", "scipy", "safetensors"),
    }
    fingerprint = sha256_of_json({**inputs, "chunk": _CHUNK})
    checkpoint = work / f"covariance-{fingerprint[:16]}"
    with only_writer(work / _LOCK, work):
        for leftover in work.glob(f"{checkpoint.name}.*.part"):
            leftover.unlink()
        sums = Covariance(encoder.dim, device)
        if checkpoint.exists():
            sums.load(checkpoint, fingerprint)
        progress(sums.rows, len(texts), 0)
        last = time.monotonic()
        while sums.rows < len(texts):
            sums.add(encoder.encode(texts[sums.rows : sums.rows + _CHUNK]))
            if sums.rows == len(texts) or time.monotonic() - last >= checkpoint_seconds:
                sums.save(checkpoint, fingerprint)
                last = time.monotonic()
            progress(sums.rows, len(texts), 0)
        mean, covariance = sums.finish()
        total = float(np.trace(covariance))
        eigenvalues, components = largest_eigenvectors(covariance, possible)
        checkpoint.unlink()
    return PrincipalComponents(
        PcaMetadata(
            encoder=encoder.name,
            captions=len(texts),
            total_variance=total,
            requested=dim if possible < dim else None,
            **inputs,
        ),
        mean.astype(np.float32),
        components,
        np.maximum(eigenvalues, 0),  # without variance, rounding can leave some below
    )


def _hash_of(encoder: CaptionEncoder) -> str:
    return recipe_hash(encoder.recipe(), encoder.weights[1])


def _require_room(work: Path, width: int) -> None:
    require_folder(work)
    work.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(work).free
    if fit_disk(width) > free:
        raise PcaError(
            f"the unfinished sums of a {width} x {width} covariance need "
            f"{fit_disk(width) / 1e6:.1f} MB in {work}, and {free / 1e6:.1f} MB are free; make "
            "room or give another folder"
        )
