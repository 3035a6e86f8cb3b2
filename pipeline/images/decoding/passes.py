"""The two passes of a resize in integers, compiled by numba without a compiler on the machine."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

Pixels = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int32]

_BITS = 22  # of the weights
_HALF = 1 << (_BITS - 1)

_BYTE, _WORD, _PLACE = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES, _WORDS = ir.VectorType(_BYTE, 4), ir.VectorType(_WORD, 4)


def _four(value: int) -> ir.Constant:
    return ir.Constant(_WORDS, [value] * 4)


@intrinsic
def _sum_of_pixels(
    typing: Any, source: Any, at: Any, weights: Any, first: Any, count: Any, target: Any, to: Any
) -> Any:
    """Write the rounded weighted sum of `count` pixels of `source`, and one byte more.

    A pixel and the byte after it are one vector, which LLVM does not find: it sees three channels.
    """

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        def pointer(array: int, kind: ir.Type) -> Any:
            fields = cgutils.create_struct_proxy(signature.args[array])(
                context, builder, given[array]
            )
            return builder.gep(builder.bitcast(fields.data, kind.as_pointer()), [given[array + 1]])

        pixels, scales, result = pointer(0, _BYTE), pointer(2, _WORD), pointer(5, _BYTE)
        total = cgutils.alloca_once_value(builder, _four(_HALF))
        with cgutils.for_range(builder, given[4]) as loop:
            place = builder.gep(pixels, [builder.mul(loop.index, _PLACE(3))])
            pixel = builder.load(builder.bitcast(place, _BYTES.as_pointer()), align=1)
            scale = builder.load(builder.gep(scales, [loop.index]))
            lane = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), scale, _WORD(0))
            product = builder.mul(
                builder.shuffle_vector(lane, lane, _four(0)), builder.zext(pixel, _WORDS)
            )
            builder.store(builder.add(builder.load(total), product), total)
        rounded = builder.ashr(builder.load(total), _four(_BITS))
        for sign, limit in ((">", _four(0)), ("<", _four(255))):
            rounded = builder.select(builder.icmp_signed(sign, rounded, limit), rounded, limit)
        place = builder.bitcast(result, _BYTES.as_pointer())
        builder.store(builder.trunc(rounded, _BYTES), place, align=1)
        return context.get_dummy_value()

    place = numba.types.int64
    return numba.types.void(source, place, weights, place, place, target, place), build


def columns_pass(
    pixels: Pixels, first: Integers, count: Integers, weights: Integers, top: int, bottom: int
) -> Pixels:
    """Return weighted sums of columns, (bottom - top, 3 * columns), of rows `top` to `bottom`.

    `pixels` are (height, 3 * width), as all arrays here.
    """
    # A pixel is read and written with the byte after it: the next pixel's, or one of padding.
    width = 3 * len(first)
    result = np.empty((bottom - top) * width + 1, np.uint8)
    last = np.zeros((1, pixels.shape[1] + 1), np.uint8)
    last[0, :-1] = pixels[-1]
    for y in range(top, bottom):
        final = y == len(pixels) - 1
        source, row = (last, 0) if final else (pixels, y * pixels.shape[1])
        for x in range(len(first)):
            _sum_of_pixels(  # type: ignore[call-arg]
                source, row + 3 * first[x], weights, x * weights.shape[1], count[x], result,
                (y - top) * width + 3 * x,
            )  # fmt: skip
    return result[:-1].reshape(bottom - top, width)


def rows_pass(
    pixels: Pixels, first: Integers, count: Integers, weights: Integers, left: int, right: int
) -> Pixels:
    """Return weighted sums of rows, (rows, right - left), of bytes `left` to `right` of each."""
    result = np.empty((len(first), right - left), np.uint8)
    total = np.empty(right - left, np.int32)
    for y in range(len(first)):
        total[:] = _HALF
        for k in range(count[y]):
            weight, row = weights[y, k], pixels[first[y] + k, left:right]
            for x in range(len(total)):
                total[x] += weight * np.int32(row[x])
        for x in range(len(total)):
            result[y, x] = min(max(total[x] >> _BITS, 0), 255)
    return result


_UINT8, _INT32 = numba.types.uint8, numba.types.int32
_GIVEN = numba.types.Array(_UINT8, 2, "C", readonly=True)
_SIGNATURE = _UINT8[:, ::1](
    _GIVEN, _INT32[::1], _INT32[::1], _INT32[:, ::1], numba.types.int64, numba.types.int64
)


def _compiled(function: Any) -> Any:
    try:
        return numba.njit(_SIGNATURE, nogil=True, cache=True)(function)
    except Exception:  # compiled code cannot be kept, or what was kept is damaged
        return numba.njit(_SIGNATURE, nogil=True)(function)


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError("numba does not compile (NUMBA_DISABLE_JIT)")
columns_pass, rows_pass = _compiled(columns_pass), _compiled(rows_pass)
