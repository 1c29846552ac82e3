"""Matrix products of arrays, for every type, through BLAS.

What BLAS has no type for is multiplied in a type that it has, block by block: half precision in
float32, rounded once; integers in whichever float type holds every partial sum exactly, or, where
none does, in pieces of 16 bits. Which way is taken, and where blocks end, depends on types, shapes,
strides and (integers) values: never on how work is scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, batches_loops, compiled, shaping
from skimp._kernels.blas import UFUNCS, multiply
from skimp._kernels.openblas import FEW, LARGE

Array = np.ndarray[Any, Any]
Finish = Callable[
    [Array, Any], None
]  # takes a block of the product, in the working type, and its place in the result

FIRST, SECOND, NEITHER = range(3)  # which factor is transposed
_BLAS = frozenset("fdFD")
_SCRATCH = 1 << 20  # elements of a converted block
_FEW = 1 << 15  # multiplications up to which NumPy's own integer loop is as fast
_FLOATS = ((np.dtype(np.float32), 24), (np.dtype(np.float64), 53))  # bits of an exact integer
_LIMB, _TILE, _DEPTH = 16, 512, 4096  # 2 ** (16 + 16) * 4096 is exact in float64


def product(a: Array, b: Array, out: Array, finish: Finish | None = None) -> None:
    """out = a @ b for (..., m, k) and (..., k, n), whose batch dims broadcast to those of out.

    `out` has the type of both and shares no memory with them. With `finish` the blocks go there
    instead, in the working type, before they are rounded.
    """
    if out.size == 0:
        return
    if out.dtype.char in _BLAS:
        if (
            finish is None
            and (a.flags.c_contiguous or has_unit_stride(a))
            and (b.flags.c_contiguous or has_unit_stride(b))
            and (out.flags.c_contiguous or has_unit_stride(out))
        ):
            multiply(a, b, out)
            return
        _blocks(a, b, out, out.dtype, finish)
    elif out.dtype.kind in "iu":
        _integers(a, b, out, finish)
    else:
        _blocks(a, b, out, np.dtype(np.float32), finish)


def has_unit_stride(x: Array) -> bool:
    """Whether BLAS can read (or write) the matrices of `x` where they lie: rows or columns are runs
    of memory.
    """
    rows, columns = x.shape[-2:]
    down, right = x.strides[-2:]
    size = x.itemsize
    if rows == 1 or columns == 1:
        step = right if rows == 1 else down
        return (rows == columns) or (step > 0 and step % size == 0)
    if right == size:
        return down >= columns * size and down % size == 0
    return down == size and right >= rows * size and right % size == 0


def _times(
    x: Array,
    y: Array,
    flipped: int,
    below: int,
    shape: tuple[int, ...] | None = None,
    bias: Array | None = None,
) -> Array | None:
    """The product, of fewer than `below` elements, of factors that BLAS reads where they lie, of
    which the `FIRST`, the `SECOND` or `NEITHER` is transposed; None of any other.

    They are matrices; batches that have the same dims before the last two; a matrix and a vector;
    or what is seen as a matrix by its last dim, and a matrix. `shape`: of the result, if it is
    another one. `bias`: what is added to each row, or to all, where no factor is `LARGE`.
    """
    if x.dtype != y.dtype or x.dtype.char not in _BLAS:
        return None
    first, second = x.ndim, y.ndim
    if not (x.size and y.size and first and second):
        return None
    if first > 2 < second:
        if x.shape[:-2] != y.shape[:-2]:
            return None
    elif flipped == FIRST:
        if first != 2 or (second > 2 and not y.flags.c_contiguous):
            return None
    elif (
        second > 2
        or (second == 1 and (flipped == SECOND or first == 1))
        or (first != 2 and not x.flags.c_contiguous)
    ):
        return None
    ends = x.shape[:-1]
    if first != 2 > second - 1:
        x = x.reshape(-1, x.shape[-1])
    elif second > 2 == first:
        y = y.reshape(-1, y.shape[-1])
    if flipped == FIRST:
        x = x.swapaxes(-1, -2)
        ends = x.shape[:-1]
    elif flipped == SECOND:
        y = y.swapaxes(-1, -2)
    matrix = y[:, None] if second == 1 else y
    depth, columns = matrix.shape[-2:]
    if (
        x.shape[-1] != depth
        or x.size // depth * columns >= below
        or not ((x.flags.forc if x.ndim == 2 else x.flags.c_contiguous) or has_unit_stride(x))
        or not ((y.flags.forc if y.ndim < 3 else y.flags.c_contiguous) or has_unit_stride(matrix))
    ):
        return None
    if bias is not None and not (
        y.ndim == 2
        and max(x.size, y.size) < LARGE
        and bias.dtype == x.dtype
        and bias.shape in ((columns,), (*x.shape[:-1], columns))
    ):
        return None
    if second == 1 or (x.ndim == 2 and depth > 1 and x.size * columns <= FEW):
        made = np.matmul(x, y)
    else:
        made = multiply(x, y)
    if bias is not None:
        made += bias
    if shape is None:
        shape = ends if second == 1 else (*ends, columns)
    whole: Array = made if made.shape == shape else made.reshape(shape)
    return whole


_loops: Final = compiled.loops()
times: Final[Callable[..., Array | None]] = (
    _times if _loops is None else _loops.times(_times, UFUNCS, FEW, batches_loops.WORTH - 1, LARGE)
)


# -- blocks ---------------------------------------------------------------------------------------


def _blocks(a: Array, b: Array, out: Array, work: np.dtype[Any], finish: Finish | None) -> None:
    """Multiply in `work`: of what has another type, or strides that BLAS can't take, a block at a
    time is copied.
    """
    for where, one, other in _batches(a, b, out.shape):
        if out[where].ndim > 2:
            _finish(multiply(_ready(one, work), _ready(other, work)), where, out, finish)
        else:
            _block_matrix(one, other, out, where, work, finish)


def _batches(a: Array, b: Array, shape: tuple[int, ...]) -> Iterator[tuple[Any, Array, Array]]:
    """Pieces of the batch dims such that the matrices of a piece make one block; or single
    matrices, if they are large.
    """
    if len(shape) == 2:
        yield (), a, b
        return
    each = max(math.prod(shape[1:]), math.prod(a.shape[-2:]), math.prod(b.shape[-2:]))
    step = _SCRATCH // max(each, 1)
    lead = len(shape) - 2
    for start in range(0, shape[0], max(step, 1)):
        piece = slice(start, start + step) if step else start
        one, other = _piece(a, piece, lead), _piece(b, piece, lead)
        if step:
            yield (piece,), one, other
        else:
            for where, x, y in _batches(one, other, shape[1:]):
                yield (piece, *where), x, y


def _piece(x: Array, piece: Any, lead: int) -> Array:
    """Part of the first of `lead` batch dims, which x may lack or have as one that repeats."""
    if x.ndim - 2 < lead:
        return x
    if x.shape[0] == 1 or x.strides[0] == 0:
        return x[0] if isinstance(piece, int) else x[:1]
    part: Array = x[piece]
    return part


def _block_matrix(
    a: Array, b: Array, out: Array, where: Any, work: np.dtype[Any], finish: Finish | None
) -> None:
    """One matrix: the smaller operand is made ready whole, the larger in bands."""
    (m, k), n = a.shape, b.shape[1]
    target = out[where]
    direct = finish is None and target.dtype == work and has_unit_stride(target)
    if a.size >= b.size:
        b = _ready(b, work)
        step = m if direct and _is_ready(a, work) else max(64, _SCRATCH // max(k, n, 1))
        bands: list[Any] = [slice(i, i + step) for i in range(0, m, step)]
    else:
        a = _ready(a, work)
        step = n if direct and _is_ready(b, work) else max(64, _SCRATCH // max(k, m, 1))
        bands = [(slice(None), slice(i, i + step)) for i in range(0, n, step)]
    for band in bands:
        x, y = (a, b[band]) if isinstance(band, tuple) else (a[band], b)
        x, y = _ready(x, work), _ready(y, work)
        if direct:
            multiply(x, y, target[band])
        else:
            place = (*where, *band) if isinstance(band, tuple) else (*where, band)
            _finish(multiply(x, y), place, out, finish)


def _is_ready(x: Array, work: np.dtype[Any]) -> bool:
    return x.dtype == work and has_unit_stride(x)


def _ready(x: Array, work: np.dtype[Any]) -> Array:
    return x if _is_ready(x, work) else x.astype(work, order="C")


def _finish(block: Array, where: Any, out: Array, finish: Finish | None) -> None:
    if finish is not None:
        finish(block, where)
    elif out.dtype.kind in "iu" and block.dtype.kind == "f":
        out[where] = block.astype(np.int64)  # wraps, where float to a small integer would not
    else:
        out[where] = block


# -- integers -------------------------------------------------------------------------------------


def _integers(a: Array, b: Array, out: Array, finish: Finish | None) -> None:
    k = a.shape[-1]
    if out.size * k <= _FEW:
        _finish(np.matmul(a, b), (), out, finish)
        return
    work = _exact(a, b, k)
    if work is not None:
        _blocks(a, b, out, work, finish and _wrapping(out.dtype, finish))
        return
    for where, one, other in _matrices(a, b, out.shape):
        for rows in range(0, one.shape[0], _TILE):
            for columns in range(0, other.shape[1], _TILE):
                tile = (slice(rows, rows + _TILE), slice(columns, columns + _TILE))
                _finish(
                    _in_limbs(one[tile[0]], other[:, tile[1]]).astype(out.dtype),
                    (*where, *tile),
                    out,
                    finish,
                )


def _wrapping(dtype: np.dtype[Any], finish: Finish) -> Finish:
    return lambda block, where: finish(block.astype(np.int64).astype(dtype), where)


def _matrices(a: Array, b: Array, shape: tuple[int, ...]) -> Iterator[tuple[Any, Array, Array]]:
    a = shaping.broadcast(a, (*shape[:-2], *a.shape[-2:]))
    b = shaping.broadcast(b, (*shape[:-2], *b.shape[-2:]))
    for where in np.ndindex(*shape[:-2]):
        yield where, a[where], b[where]


def _exact(a: Array, b: Array, k: int) -> np.dtype[Any] | None:
    """The float type in which no partial sum of the product is rounded."""
    size = _largest(a) * _largest(b) * k
    return next((work for work, bits in _FLOATS if size < 2**bits), None)


def _largest(x: Array) -> int:
    """A bound of the absolute values: the type's, or the array's own where that is no help."""
    info = np.iinfo(x.dtype)
    return max(info.max, -info.min) if x.itemsize <= 2 else max(int(x.max()), -int(x.min()))


def _in_limbs(a: Array, b: Array) -> Array:
    """a @ b modulo 2 ** 64, by schoolbook multiplication in base 2 ** 16."""
    total = np.zeros((a.shape[0], b.shape[1]), np.int64)
    count = 8 * a.itemsize // _LIMB
    for start in range(0, a.shape[1], _DEPTH):
        one = _limbs(a[:, start : start + _DEPTH], count)
        other = _limbs(b[start : start + _DEPTH], count)
        for i in range(count):
            for j in range(count - i):
                total += (one[i] @ other[j]).astype(np.int64) << (_LIMB * (i + j))
    return total


def _limbs(x: Array, count: int) -> list[Array]:
    x = x.astype(np.int64)
    return [((x >> (_LIMB * i)) & (2**_LIMB - 1)).astype(np.float64) for i in range(count)]


# -- vectors --------------------------------------------------------------------------------------


def dot(a: Array, b: Array, conjugate: bool = False) -> Any:
    """The sum of a * b (of conj(a) * b), in their type; half precision is summed in float32."""
    multiply = bare.vdot if conjugate else bare.dot
    if a.dtype.char in _BLAS or a.dtype.kind in "iu":
        return multiply(a, b)
    total = np.float32(0)
    for start in range(0, len(a), _SCRATCH):
        part = slice(start, start + _SCRATCH)
        total += bare.dot(a[part].astype(np.float32), b[part].astype(np.float32))
    return total.astype(a.dtype)
