"""The codebook of Fisher vectors: whitening and mixture, fitted on word vectors, in one file."""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from pipeline.store.files import created_by
from pipeline.store.own_files import reading
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors
from pipeline.text import EncoderError, FittedFileError
from pipeline.text.fisher.mixture import Mixture, MixtureKind
from pipeline.text.vectors import WordVectors

FITTED_BY = "numpy", "scipy", "scikit-learn", "safetensors"
"""The packages whose versions a codebook records."""

_KINDS = get_args(MixtureKind)
_HYBRID_SCALE = 10.0  # norm of the samples that the variance floors of `fit_hybrid` assume
_EM_ITERATIONS = 10
_ICA_ITERATIONS = 1000
_ROWS = 4096
_KEY = "codebook"  # key of the metadata in the file


@dataclass(frozen=True)
class CodebookMetadata:
    """Data and outcome of a codebook's fit."""

    kind: str  # "gmm", "hglmm" or "lmm"
    vectors: str  # name of the word vectors
    source_sha256: str  # of their source: the codebook fits all vectors of that source
    sample: int  # number of words in the sample
    seed: int  # of sample, ICA and EM
    ica_iterations: int | None  # maximum over the components; None without ICA
    ica_converged: bool | None  # whether all components did; None without ICA
    em_converged: bool | None  # None for a fixed number of iterations
    created_by: str  # software and versions
    requested: int | None = None  # number of components, if there were fewer words

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values; `requested` only if fewer were fitted."""
        value = asdict(self)
        if self.requested is None:
            del value["requested"]
        return value


@dataclass(frozen=True, eq=False)
class Codebook:
    """Whitening and mixture."""

    metadata: CodebookMetadata
    whitening: npt.NDArray[np.float32]  # (D, D): `vector @ whitening.T`; the identity without ICA
    mixture: Mixture  # over D dimensions

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of whitening and mixture."""
        digest = hashlib.sha256()
        for name, array in sorted(self._tensors().items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def transform(self, words: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return word vectors (words, D) float32, whitened and scaled as in the fit of the mixture.

        They are L2-normalised, whitened, L2-normalised again, and for "hglmm" and "lmm" times 10; a
        zero vector stays zero.
        """
        if words.ndim != 2 or words.shape[1] != len(self.whitening):
            raise EncoderError(
                f"the word vectors have shape {words.shape}, expected (words, "
                f"{len(self.whitening)}) as {self.metadata.vectors!r}, on which this codebook was "
                "fitted"
            )
        return _prepared(words, self.whitening, self.metadata.kind)

    def require_vectors(self, vectors: WordVectors, what: str) -> None:
        """Check that word vectors have the source of those of the fit; the message names `what`."""
        if self.metadata.source_sha256 != vectors.source_sha256:
            raise FittedFileError(
                f"{what} was fitted on the word vectors {self.metadata.vectors!r} (SHA-256 of "
                f"their source {self.metadata.source_sha256}), not on {vectors.name!r} (SHA-256 of "
                f"their source {vectors.source_sha256}); use the former, or fit a codebook on the "
                "latter"
            )

    def save(self, path: Path) -> None:
        """Write one `.safetensors` file atomically; equal codebooks have equal bytes."""
        write_tensors(path, self._tensors(), _KEY, self.metadata.to_json())

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {"whitening": self.whitening, **vars(self.mixture)}


def fit_codebook(
    vectors: WordVectors,
    kind: MixtureKind = "hglmm",
    components: int = 30,
    *,
    seed: int,
    ica: bool = True,
    sample: int = 300_000,
    progress: Callable[[str], None] = lambda step: None,
) -> Codebook:
    """Fit whitening and mixture on word vectors, in the order of Klein et al. 2015.

    L2-normalised vectors, FastICA, its unmixing matrix applied without centring, L2 normalisation,
    times 10 for mixtures with Laplacians, EM. ICA has the settings of their program: deflation,
    cube, at most 1000 iterations per component; its tolerance of 1e-4 is here of the cosine between
    successive directions. An ICA or EM that does not converge is used as is, and the metadata
    record it: with GloVe 50-d a few components of the ICA oscillate.
    """
    if kind not in _KINDS:
        raise EncoderError(f"the kind of codebook is {kind!r}, expected one of {_KINDS}")
    usable = np.flatnonzero(vectors.matrix.any(axis=1))
    needed = max(components, vectors.dim + 1 if ica else 1)
    if sample < min(needed, len(usable)):
        raise EncoderError(
            f"a sample of {sample} words was requested, but {components} components"
            f"{f' and an ICA of {vectors.dim} dimensions' if ica else ''} need at least {needed}: "
            "request a larger sample or fewer components"
        )
    if len(usable) < 2:
        raise EncoderError(
            f"{len(usable)} of the {len(vectors.words)} words of {vectors.name!r} are not zero, "
            "but a codebook needs at least 2; add captions to the training split, or fit it on "
            "the words of the source"
        )
    requested, components = components, min(components, len(usable))
    if components < requested:
        progress(f"codebook ({kind}): {components} components, not {requested}, from as many words")
    if ica and len(usable) <= vectors.dim:
        ica = False
        progress(f"codebook ({kind}): no ICA of {vectors.dim} dimensions, from {len(usable)} words")
    if len(usable) > sample:
        usable = np.sort(np.random.default_rng(seed).choice(usable, sample, replace=False))
    words = vectors.matrix[usable]
    whitening = np.eye(vectors.dim, dtype=np.float32)
    ica_iterations = ica_converged = None
    # Deterministic order of sums: last bits differ otherwise, unconverged components much more.
    with threadpool_limits(limits=1):
        if ica:
            progress(f"ICA of {len(words)} words in {vectors.dim} dimensions")
            whitening, ica_iterations = _fit_ica(_by_blocks(words, _unit), seed)
            ica_converged = ica_iterations < _ICA_ITERATIONS
        words = _prepared(words, whitening, kind)
        progress(f"EM of {components} components ({kind})")
        mixture, em_converged = _fit_mixture(words, kind, components, seed, progress)
    metadata = CodebookMetadata(
        kind=kind,
        vectors=vectors.name,
        source_sha256=vectors.source_sha256,
        sample=len(words),
        seed=seed,
        ica_iterations=ica_iterations,
        ica_converged=ica_converged,
        em_converged=em_converged,
        requested=requested if components < requested else None,
        created_by=created_by(*FITTED_BY),
    )
    return Codebook(metadata, whitening, mixture)


def load_codebook(path: Path, vectors: WordVectors) -> Codebook:
    """Load a codebook that `Codebook.save` wrote, for any words of the source it was fitted on."""
    with reading(path, "a codebook", "fit it again", FittedFileError):
        metadata = CodebookMetadata(**read_metadata(path, _KEY))
        tensors = read_tensors(path, ["whitening", *(field.name for field in fields(Mixture))])
        try:
            codebook = _assembled(metadata, tensors)
        except EncoderError as error:
            raise ValueError(str(error)) from error
    codebook.require_vectors(vectors, str(path))
    return codebook


def _assembled(metadata: CodebookMetadata, tensors: Mapping[str, npt.NDArray[Any]]) -> Codebook:
    mixture = Mixture(**{field.name: tensors[field.name] for field in fields(Mixture)})
    whitening = tensors["whitening"]
    square = whitening.shape == (mixture.dim, mixture.dim) and whitening.dtype == np.float32
    if metadata.kind not in _KINDS or not square or not np.isfinite(whitening).all():
        raise ValueError(
            f"kind {metadata.kind!r}, whitening {whitening.dtype} of shape {whitening.shape} or "
            f"not finite, {mixture.dim} dimensions"
        )
    return Codebook(metadata, whitening, mixture)


def _fit_ica(words: npt.NDArray[np.float32], seed: int) -> tuple[npt.NDArray[np.float32], int]:
    """Return the unmixing matrix (D, D) and the maximum number of iterations."""
    # Imported here: scikit-learn takes a second to import, and codebooks are mostly loaded.
    from sklearn.decomposition import FastICA

    model = FastICA(
        n_components=words.shape[1],
        algorithm="deflation",
        fun="cube",
        max_iter=_ICA_ITERATIONS,
        tol=1e-4,
        whiten="unit-variance",
        whiten_solver="eigh",  # on the (D, D) covariance: needs far less memory than "svd"
        random_state=seed,
    )
    # Some processors' matrix kernels raise "invalid" for products of finite numbers.
    with np.errstate(invalid="ignore"), suppress(ValueError), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There are some small singular values", UserWarning)
        model.fit(words)
    # Without components: of words that are all equal.
    unmixing = getattr(model, "components_", np.array(np.nan)).astype(np.float32)
    if not np.isfinite(unmixing).all():
        raise EncoderError(
            f"the ICA of {len(words)} words in {words.shape[1]} dimensions has values that are "
            "not finite; use a larger sample, or ica=False"
        )
    return unmixing, int(model.n_iter_)


def _fit_mixture(
    words: npt.NDArray[np.float32],
    kind: MixtureKind,
    components: int,
    seed: int,
    progress: Callable[[str], None],
) -> tuple[Mixture, bool | None]:
    # Imported here, since it imports scikit-learn.
    from pipeline.text.fisher.em import fit_gaussian, fit_hybrid

    if kind == "gmm":
        return fit_gaussian(words, components, seed=seed)

    def report(done: int, total: int, log_likelihood: float) -> None:
        progress(f"EM iteration {done} of {total}: log-likelihood of a word {log_likelihood:.4f}")

    which: Literal["hybrid", "laplacian"] = "hybrid" if kind == "hglmm" else "laplacian"
    mixture = fit_hybrid(words, components, _EM_ITERATIONS, seed=seed, kind=which, progress=report)
    return mixture, None


def _prepared(
    words: npt.NDArray[np.float32], whitening: npt.NDArray[np.float32], kind: str
) -> npt.NDArray[np.float32]:
    length = 1.0 if kind == "gmm" else _HYBRID_SCALE
    matrix = whitening.T.astype(np.float64)
    # In float64, so that a word's result does not depend on the others in the product.
    return _by_blocks(words, lambda block: _unit(_unit(block) @ matrix) * length)


def _by_blocks(
    words: npt.NDArray[np.float32],
    change: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
) -> npt.NDArray[np.float32]:
    changed = np.empty_like(words)
    for start in range(0, len(words), _ROWS):
        changed[start : start + _ROWS] = change(words[start : start + _ROWS].astype(np.float64))
    return changed


def _unit(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return L2-normalised rows; zeros stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)
