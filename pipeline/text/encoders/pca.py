"""Projection of another encoder's rows on principal components."""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from pipeline.store.builder.locking import WORK_FOLDER
from pipeline.store.hashing import sha256_of_json
from pipeline.store.wording import counted
from pipeline.text.encoders.base import CaptionEncoder, Encoder, Fitting, VocabularyReport, Words
from pipeline.text.encoders.options import OfEncoders, encoder_option
from pipeline.text.encoders.registry import class_of
from pipeline.text.pca.components import (
    PrincipalComponents,
    components_of,
    fit_disk,
    fit_memory,
    fit_pca,
    load_pca,
    require_two,
)

# Captions per product, a constant, also for fewer: products of other sizes are summed in another
# order, which would change a row's last bits.
_CHUNK = 256
_FILE = "projection.safetensors"
_MB = 1e6


@dataclass(frozen=True)
class PcaOptions(OfEncoders):
    """Options of `Pca`: one encoder whose rows are projected, and the number of components."""

    pca: int = encoder_option(
        MISSING, key=("pca",), least=1, help="Project rows on N principal components."
    )

    @property
    def fitted_on_captions(self) -> bool:
        return True

    def completed(self, captions: Sequence[str]) -> Self:
        require_two(len(captions))
        return super().completed(captions)


class Pca(Encoder):
    """An encoder's rows projected on their principal components, not whitened or normalised."""

    Options: ClassVar = PcaOptions

    def __init__(self, encoder: CaptionEncoder, basis: PrincipalComponents) -> None:
        """Store an encoder and the components that were fitted on its rows."""
        basis.check(encoder)
        self.encoder, self.basis = encoder, basis
        self.dim = basis.dim
        self.name = f"{encoder.name}-pca{self.dim}"
        name, sha256 = encoder.weights
        both = {"encoder": sha256, "projection": basis.sha256}
        self.weights = f"{name}, PCA", sha256_of_json(both)
        self.trained_on = encoder.trained_on
        self.plugin = getattr(encoder, "plugin", "")
        at_once = 4 * _CHUNK * (2 * encoder.dim + self.dim)
        self.memory = encoder.memory + basis.components.nbytes + at_once

    @classmethod
    def fit(cls, options: PcaOptions, folder: Path, fitting: Fitting, words: Words) -> Self:
        (of,) = options.members
        missing = not (path := folder / _FILE).is_file()
        # First, so that an unusable device leaves no fitted file behind. Imported here: importing
        # torch needs seconds, and numpy multiplies on a CPU.
        if missing and fitting.device != "cpu":
            from pipeline.store.devices import usable_device

            usable_device(fitting.device)
        encoder = class_of(of).fit(of, folder, fitting, words)
        if missing:
            _fit_components(encoder, options.pca, path, fitting)
        return cls(encoder, load_pca(path, encoder))

    @classmethod
    def load(cls, options: PcaOptions, folder: Path, words: Words) -> Self:
        (of,) = options.members
        encoder = class_of(of).load(of, folder, words)
        return cls(encoder, load_pca(folder / _FILE, encoder))

    def recipe(self) -> dict[str, Any]:
        fitted_to = self.basis.metadata
        return {
            "name": self.name,
            "encoder": "principal components",
            "of": self.encoder.recipe(),
            "captions": fitted_to.captions,
            "captions_sha256": fitted_to.captions_sha256,
            **({} if fitted_to.requested is None else {"requested": fitted_to.requested}),
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32; one caption costs as much as 256."""
        import torch  # here: most encoders do not need it, and it takes seconds to import

        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        # Captions are columns of the right factor, which MKL sums in one order for all columns.
        # As rows, the order would vary with the position, in MKL and in OpenBLAS.
        columns = torch.zeros((self.encoder.dim, _CHUNK))
        components = torch.from_numpy(self.basis.components).T
        for start in range(0, len(texts), _CHUNK):
            chunk = self.encoder.encode(texts[start : start + _CHUNK])
            columns[:, : len(chunk)] = torch.from_numpy(chunk - self.basis.mean).T
            rows[start : start + _CHUNK] = (components @ columns)[:, : len(chunk)].T.numpy()
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        return self.encoder.reports(texts)


def _fit_components(encoder: CaptionEncoder, dim: int, path: Path, fitting: Fitting) -> None:
    """Log the sizes, then fit principal components on the rows of the training captions."""
    captions, log = len(fitting.training), fitting.monitor.log
    possible = components_of(captions, encoder.dim, dim)
    if possible < dim:
        log(
            f"PCA: {counted(possible, 'component')}, not {dim}, from "
            f"{counted(captions, 'caption')} with rows of {encoder.dim} numbers"
        )
    log(
        f"{possible} principal components of {captions} rows of {encoder.dim} numbers: at most "
        f"{fit_memory(encoder.dim, possible) / _MB:.0f} MB of memory and "
        f"{fit_disk(encoder.dim) / _MB:.0f} MB on the disk, for any number of captions"
    )
    work = path.absolute().parent.parent / WORK_FOLDER / f"{path.absolute().parent.name}-pca"
    with fitting.monitor.progress("principal components", "caption") as progress:
        components = fit_pca(
            encoder, fitting.training, dim, work, device=fitting.device, progress=progress
        )
    components.save(path)
