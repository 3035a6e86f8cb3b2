"""The largest eigenvalues of a large symmetric matrix, with eigenvectors."""

import numpy as np
import numpy.typing as npt

_COLUMNS = 256  # eigenvectors per block of the back-transformation
_BLOCK = 64  # maximum number of columns per LAPACK block


def largest_eigenvectors(
    matrix: npt.NDArray[np.float64], number: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """Return the largest eigenvalues of a symmetric matrix (n, n) float64 and their eigenvectors.

    Eigenvalues (number,) float64, descending; unit eigenvectors in columns (n, number) float32, the
    largest absolute number of each positive. `matrix` is in Fortran order and is overwritten; only
    its lower triangle is read. Tridiagonal reduction, multiple relatively robust representations
    (Dhillon and Parlett 2004, LAPACK's `dstemr`) and back-transformation.
    """
    # `scipy.linalg.eigh` does not offer this driver for a subset of the eigenvalues, and its "evd"
    # computes them all. Imported here: scipy is slow to import, and components are mostly loaded.
    from scipy.linalg import eigh_tridiagonal
    from scipy.linalg.lapack import dormqr, dsytrd, dsytrd_lwork

    n = len(matrix)
    if n == 1:
        return matrix[0].copy(), np.ones((1, 1), dtype=np.float32)
    lwork = int(dsytrd_lwork(n, lower=1)[0])
    reflectors, diagonal, off_diagonal, tau, _ = dsytrd(matrix, lower=1, lwork=lwork, overwrite_a=1)
    values, vectors = eigh_tridiagonal(
        diagonal,
        off_diagonal,
        select="i",
        select_range=(n - number, n - 1),
        check_finite=False,
        lapack_driver="stemr",
    )
    first = vectors[:1].copy()  # unchanged by the reflectors
    others, *_ = dormqr(
        "L",
        "N",
        _without_first_row(reflectors)[:, :-1],
        tau,
        _without_first_row(vectors),
        _BLOCK * (number + _BLOCK + 1),
        overwrite_c=1,
    )
    rounded = np.empty((n, number), dtype=np.float32)
    for start in range(0, number, _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        block = np.concatenate((first[:, ::-1][:, columns], others[:, ::-1][:, columns]))
        largest = np.abs(block).argmax(axis=0)
        block *= np.where(block[largest, np.arange(block.shape[1])] < 0, -1, 1)
        rounded[:, columns] = block
    return values[::-1], rounded


def eigenvectors_memory(n: int, number: int) -> int:
    """Return the maximum memory of `largest_eigenvectors`, including the matrix, in bytes."""
    decomposing = 8 * n * (2 * n + _BLOCK + 32) + 8 * _BLOCK * (number + _BLOCK + 1)
    rounding = 16 * n * n + 4 * n * number + 24 * n * min(number, _COLUMNS)
    return max(decomposing, rounding)


def _without_first_row(columns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return (n, m) in Fortran order as (n - 1, m), compacted in place.

    LAPACK's wrapper would copy a submatrix, which can be gigabytes.
    """
    n, m = columns.shape
    flat = columns.reshape(-1, order="F")
    for column in range(m):
        flat[column * (n - 1) : (column + 1) * (n - 1)] = flat[column * n + 1 : (column + 1) * n]
    return flat[: (n - 1) * m].reshape((n - 1, m), order="F")
