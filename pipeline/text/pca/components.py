"""Principal components of an encoder's rows, fitted out of core and saved in one file."""

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

from pipeline.store.builder.locking import only_writer
from pipeline.store.files import created_by, require_folder
from pipeline.store.hashing import recipe_hash, sha256_of_json, sha256_of_texts
from pipeline.store.own_files import reading
from pipeline.store.progress import Progress, no_progress
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors
from pipeline.store.wording import counted
from pipeline.text import EncoderError, FittedFileError
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.pca.covariance import Covariance
from pipeline.text.pca.eigenvectors import eigenvectors_memory, largest_eigenvectors

_CHUNK = 2048  # captions per product
_LOCK = "fit.lock"  # in the work folder
_KEY = "projection"  # key of the metadata in the file


@dataclass(frozen=True)
class PcaMetadata:
    """Data of a fit of principal components."""

    encoder: str
    encoder_hash: str  # hash of the encoder's recipe and weights
    captions: int
    captions_sha256: str  # of the canonical JSON of their list
    device: str  # of the products
    total_variance: float  # sum of all eigenvalues
    created_by: str  # software and versions
    requested: int | None = None  # number of components, if captions or row length allow fewer

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values; `requested` only if fewer were fitted."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """Principal components of the rows of an encoder."""

    metadata: PcaMetadata
    mean: npt.NDArray[np.float32]  # (D,), subtracted from a row first
    # (D, dim), unit columns by descending eigenvalue; the largest absolute number of each column is
    # positive, since the signs of eigenvectors are arbitrary.
    components: npt.NDArray[np.float32]
    eigenvalues: npt.NDArray[np.float64]  # (dim,), descending variances, at least 0

    @property
    def dim(self) -> int:
        """Number of components."""
        return len(self.eigenvalues)

    @property
    def explained(self) -> float:
        """Share of the variance along the components, 0 to 1; 0 without variance."""
        total = self.metadata.total_variance
        return float(self.eigenvalues.sum() / total) if total else 0.0

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of mean and components."""
        digest = hashlib.sha256(f"{self.components.shape}".encode())
        for array in (self.mean, self.components):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def check(self, encoder: CaptionEncoder) -> None:
        """Check that an encoder is the one that the components were fitted on."""
        if self.metadata.encoder_hash != _hash_of(encoder):
            raise FittedFileError(
                f"the principal components were fitted on {self.metadata.encoder!r} (recipe hash "
                f"{self.metadata.encoder_hash}), not on {encoder.name!r} (recipe hash "
                f"{_hash_of(encoder)}); use that encoder with its settings, or fit components on "
                "this one"
            )

    def save(self, path: Path) -> None:
        """Write one `.safetensors` file atomically; equal components have equal bytes."""
        tensors = {name: array for name, array in vars(self).items() if name in _TENSORS}
        write_tensors(path, tensors, _KEY, self.metadata.to_json())


_TENSORS = {"mean": np.float32, "components": np.float32, "eigenvalues": np.float64}


def load_pca(path: Path, encoder: CaptionEncoder) -> PrincipalComponents:
    """Load components that `PrincipalComponents.save` wrote, to use them with their encoder."""
    with reading(path, "a file of principal components", "fit them again", FittedFileError):
        tensors = read_tensors(path, _TENSORS)
        basis = PrincipalComponents(PcaMetadata(**read_metadata(path, _KEY)), **tensors)
        expected = (len(basis.mean), len(basis.eigenvalues))
        types = {name: tensors[name].dtype.type for name in _TENSORS}
        if basis.components.shape != expected or types != _TENSORS:
            raise ValueError(f"components of shape {basis.components.shape}, not {expected}")
    basis.check(encoder)
    return basis


def require_two(captions: int) -> None:
    """Check that there are enough captions for a principal component."""
    if captions < 2:
        raise EncoderError(
            f"{counted(captions, 'training caption')} found; principal components need at least 2, "
            "since one row has no variance: add captions to the training split, or encode "
            "without `pca`"
        )


def components_of(captions: int, width: int, requested: int) -> int:
    """Return the number of components that can be fitted, at most `requested`.

    `captions` centred rows span `captions` - 1 dimensions of `width`.
    """
    return min(requested, captions - 1, width)


def fit_memory(width: int, dim: int) -> int:
    """Return the maximum memory of a fit of `dim` components on rows of `width` numbers, in bytes.

    It does not depend on the number of captions, and excludes the encoder's own memory.
    """
    sums = Covariance.memory(width) + 4 * width * _CHUNK
    unpacking = 8 * width * width + Covariance.disk(width)
    return max(sums, unpacking, eigenvectors_memory(width, dim))


def fit_disk(width: int) -> int:
    """Return the disk space of a fit's work file while it is replaced, in bytes."""
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
    """Fit principal components on an encoder's rows of D numbers in one pass over the captions.

    The work folder keeps checkpoints of the sums: after an interruption, a call with the same
    encoder, captions and device, and any `dim`, resumes from the last one and yields the same
    bytes. If captions or row length allow fewer components than `dim`, these are fitted. The last
    bits differ between devices.
    """
    if dim < 1:
        raise EncoderError(f"{dim} principal components were requested, expected 1 or more")
    require_two(len(texts))
    possible = components_of(len(texts), encoder.dim, dim)
    _require_room(work, encoder.dim)
    inputs = {
        "encoder_hash": _hash_of(encoder),
        "captions_sha256": sha256_of_texts(texts),
        "device": device,
        "created_by": created_by("numpy", "scipy", "safetensors"),
    }
    # The last bits of the sums depend on the chunks and on the software, so a checkpoint of others
    # is not resumed.
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
        checkpoint.unlink()  # last: a killed decomposition resumes after the pass
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
        np.maximum(eigenvalues, 0),  # rounding can make zero eigenvalues negative
    )


def _hash_of(encoder: CaptionEncoder) -> str:
    return recipe_hash(encoder.recipe(), encoder.weights[1])


def _require_room(work: Path, width: int) -> None:
    require_folder(work)
    work.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(work).free
    if fit_disk(width) > free:
        raise EncoderError(
            f"the unfinished sums of a {width} x {width} covariance need "
            f"{fit_disk(width) / 1e6:.1f} MB in {work}, but {free / 1e6:.1f} MB are free; free "
            "some space or choose another folder"
        )
