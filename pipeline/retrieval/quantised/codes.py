"""Quantised rows: their stored codes, and the float32 vectors that these represent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.similarity import Vectors, unit_rows

Store = Literal["float32", "float16", "int8", "binary"]

STORES: tuple[Store, ...] = ("float32", "float16", "int8", "binary")
"""Storage formats of embedding rows. "binary" keeps sign bits next to int8 codes."""

_LARGEST = 127
ZERO = -128
"""Code of all dimensions of a zero vector; outside the symmetric range -127 to 127 of others."""

_WORD_BYTES = 8
_NO_ROWS: Vectors = np.empty((0, 0), np.float32)


class StoreError(EmbeddingsError):
    """Embeddings cannot be stored or shortened as requested."""


@dataclass(frozen=True, eq=False)
class Quantiser:
    """Quantisation of the rows of both sides of an embedding file."""

    store: Store
    # By side, (dim,) float32: code c of a dimension represents middle + c * step.
    middles: Mapping[str, Vectors] = field(default_factory=dict)
    steps: Mapping[str, Vectors] = field(default_factory=dict)
    calibrated_on: Mapping[str, Any] = field(default_factory=dict)  # calibration data, as JSON

    def encode(self, rows: Vectors, side: str, similarity: str) -> "QuantisedRows":
        """Return rows (n, dim), for float16 also (n, parts, dim), in their stored form."""
        rows = _scaled(rows, similarity)
        if self.store == "float16":
            with np.errstate(over="ignore"):
                halves = rows.astype(np.float16)
            if not np.isfinite(halves).all():
                raise StoreError(
                    f"{side}: values up to {np.abs(rows).max():g} exceed float16 (65504); use the "
                    "store int8 or float32"
                )
            return QuantisedRows(halves, side, self)
        step, centred = self.steps[side], rows - self.middles[side]
        # A dimension that is constant in calibration has step 0 and keeps its middle.
        codes = np.divide(centred, step, out=np.zeros_like(rows), where=step > 0)
        codes = np.clip(np.rint(codes), -_LARGEST, _LARGEST).astype(np.int8)
        codes[~rows.any(axis=1)] = ZERO
        bits = self.signs(rows, side) if self.store == "binary" else None
        return QuantisedRows(codes, side, self, bits)

    def signs(self, rows: npt.NDArray[np.floating], side: str) -> npt.NDArray[np.uint8]:
        """Return packed sign bits (n, ceil(dim / 8)): 1 where a value is above the middle."""
        return np.packbits(rows > self.middles[side], axis=1)


@dataclass(frozen=True, eq=False)
class QuantisedRows:
    """Rows of one side as stored in a file; indexed like the float32 array that they represent."""

    # (rows, dim) float16 or int8, or (rows, parts, dim) float16; may be memory-mapped
    codes: npt.NDArray[Any]
    side: str  # "images" or "captions"
    quantiser: Quantiser
    bits: npt.NDArray[np.uint8] | None = None  # (rows, ceil(dim / 8)), as by `packbits`

    dtype: ClassVar[np.dtype] = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the vectors."""
        return self.codes.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.codes.ndim

    @property
    def step(self) -> Vectors | None:
        """Step of each dimension, (dim,) float32; None for float16."""
        return self.quantiser.steps.get(self.side)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Vectors:
        """Return the float32 vectors of some rows, by any numpy index of the first axis."""
        codes = self.codes[rows]
        vectors = codes.astype(np.float32)
        if self.step is not None:
            vectors *= self.step
            vectors += self.quantiser.middles[self.side]
            vectors[codes[..., 0] == ZERO] = 0.0
        return vectors

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype)

    def take(self, rows: npt.NDArray[np.int64]) -> "QuantisedRows":
        """Return some rows, still quantised."""
        bits = None if self.bits is None else self.bits[rows]
        return QuantisedRows(self.codes[rows], self.side, self.quantiser, bits)

    @cached_property
    def words(self) -> npt.NDArray[np.uint64]:
        """The sign bits, (ceil(dim / 64), rows), word-major for speed."""
        assert self.bits is not None, "only the store binary has sign bits"
        return np.ascontiguousarray(words_of(self.bits).T)


def quantiser_for(
    store: Store,
    similarity: str = "cosine",
    images: Vectors = _NO_ROWS,
    captions: Vectors = _NO_ROWS,
    calibrated_on: Mapping[str, Any] | None = None,
) -> Quantiser | None:
    """Return the quantiser of a store, calibrated on rows (n, dim) of both sides; None for float32.

    The middle of a dimension is the mean of the calibration rows, and 127 steps reach their largest
    distance from it. Values of other rows beyond that are clipped. A side without rows is
    calibrated on the other.
    """
    require_store(store, similarity)
    if store == "float32":
        return None
    if store == "float16":
        return Quantiser(store)
    middles, steps = {}, {}
    for side, sample, other in (("images", images, captions), ("captions", captions, images)):
        rows = _scaled(sample if len(sample) else other, similarity)
        # In float64: a float32 sum of millions of rows loses digits.
        middles[side] = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        steps[side] = np.abs(rows - middles[side]).max(axis=0) / np.float32(_LARGEST)
    return Quantiser(store, middles, steps, calibrated_on or {})


def require_store(store: Store, similarity: str) -> None:
    """Raise unless rows with a similarity can be stored in a format."""
    if store not in STORES:
        raise StoreError(f"store {store!r} is not known; expected one of {', '.join(STORES)}")
    if store == "int8" and similarity.startswith("scan-"):
        raise StoreError(f"sets of vectors ({similarity}) cannot be stored as int8; use float16")
    if store == "binary" and similarity != "cosine":
        raise StoreError(
            f"sign bits represent directions, but the similarity is {similarity}, not cosine; use "
            "int8 or float16"
        )


def shortened(rows: npt.NDArray[np.float32], dim: int, similarity: str) -> Vectors:
    """Return the first dimensions of vectors (n, d), at length 1; a zero vector stays zero."""
    if similarity != "cosine":  # of which alone a prefix is a vector of the same kind
        raise StoreError(
            f"vectors compared by {similarity} cannot be shortened, only those compared by cosine"
        )
    if not 1 <= dim <= rows.shape[-1]:
        raise StoreError(f"`dim={dim}`: expected 1 to {rows.shape[-1]}, the vectors' dimensions")
    return unit_rows(rows[:, :dim]).astype(np.float32)


def words_of(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return packed bits (n, bytes) as words (n, ceil(bytes / 8)), zero-padded."""
    padding = -bits.shape[1] % _WORD_BYTES
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, padding)))).view(np.uint64)


def _scaled(rows: Vectors, similarity: str) -> Vectors:
    """Return rows scaled for quantisation: to length 1 for cosine, else unchanged."""
    return unit_rows(rows).astype(np.float32) if similarity == "cosine" else rows
