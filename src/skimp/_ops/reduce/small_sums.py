"""Sums of small row-major arrays, with the bits of the general way."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import numpy as np

from skimp._engine.eval import reducers as R
from skimp._engine.eval.reduce import geometry
from skimp._engine.eval.run import threads_for
from skimp._engine.tensor.tensor import Array
from skimp._kernels import bare, compiled
from skimp._kernels.bare import einsum
from skimp._kernels.sharing import FROM
from skimp.config import config

PIECE: Final = 512  # elements from which rows are added piece by piece
LONG: Final = 1 << 14  # and from which they always are
COLUMN: Final = 64  # rows from which columns are added in groups
UNIT: Final = 1 << 18  # and unit by unit, whose sums are added in float64
# taking axis, dtype, out, keepdims by position, which is the shortest way
add: Final[Any] = bare.sums


def row_sums(x: Array, keepdim: bool = False) -> Any:
    """The sums of short rows, along the last dim, as `eval/reducers.py` adds them."""
    if x.dtype.char == "f" and x.flags.c_contiguous and (loops := compiled.loops()) is not None:
        if 0 < x.size < FROM:
            return loops.totals(x, x.ndim - 1, int(keepdim))
        if x.size:
            return R.looped_sums(loops, x, x.ndim - 1, int(keepdim))
    if x.shape[-1] > R.SHORT:
        return add(x, -1, None, None, keepdim)
    if not keepdim:
        return einsum("...i->...", x)
    if x.ndim == 1:
        return einsum("ij->i", x.reshape(1, -1))
    return einsum("...i->...", x)[..., None]


def column_sums(x: Array, keepdim: bool = False) -> Any:
    return add(x, 0, None, None, keepdim)


def long_columns(x: Array) -> Array | None:
    """The sums of the columns of a matrix of floats, of many rows, as `eval/reduce.py` adds them in
    one unit or few on one thread; None of any other array.
    """
    if x.ndim != 2 or len(x) < COLUMN or not 1 < x.shape[1] < config.small_below:
        return None
    cut = geometry(x.shape, (0,))
    total: Array
    if cut.alone:
        total = R.add_up(x[None])[0]
        return total
    if not cut.few or threads_for(cut.size, 1) > 1:
        return None
    sums = [R.add_up(x[None, at : at + cut.r])[0] for at in range(0, cut.rows, cut.r)]
    while len(sums) > 1:
        even = len(sums) // 2 * 2
        sums = [*map(_in_double, sums[0:even:2], sums[1:even:2]), *sums[even:]]
    total = sums[0].astype(x.dtype, copy=False)
    return total


_in_double: Final[Any] = partial(np.add, dtype=np.float64)


def all_finite(x: Array) -> bool:
    """Whether no number is infinite or NaN; False, too, where squares add up to infinity. BLAS
    takes a third of a reduction's time.
    """
    flat = x.reshape(-1)
    return math.isfinite(flat.dot(flat))


def total(x: Array) -> Any:
    """The sum of all elements, as `eval/reduce.py` adds them."""
    n, flat = x.size, x.reshape(-1)
    if 0 < n <= UNIT and x.dtype.char == "f" and (loops := compiled.loops()) is not None:
        return loops.totals(flat, 0, 0) if n < FROM else R.looped_sums(loops, flat, 0)
    if n <= R.SHORT:
        return einsum("i->", flat)
    if n < PIECE or (n < LONG and n % PIECE):
        return add(flat)
    if n > UNIT:
        return x.dtype.type(in_units(flat))
    whole = n // PIECE * PIECE
    if n == PIECE:
        return einsum("i->", flat)
    if whole == n:
        return einsum("i->", einsum("ij->i", flat.reshape(-1, PIECE)))
    pieces = einsum("ij->i", flat[:whole].reshape(-1, PIECE))
    return einsum("i->", pieces) + einsum("i->", flat[whole:])


def squared(x: Array) -> Any:
    """The sum of all squares, likewise."""
    n, flat = x.size, x.reshape(-1)
    if 0 < n <= UNIT and x.dtype.char == "f" and (loops := compiled.loops()) is not None:
        if n < FROM:
            return loops.squares(flat, None, 0, 0)
        return R.looped_sums(loops, flat, 0, 0, True)
    return total(bare.square(x))


def in_units(flat: Array) -> float:
    """The sum of more than one unit, before it is rounded."""
    if flat.dtype.char == "f" and (loops := compiled.loops()) is not None:
        return _in_pairs(R.unit_sums(loops, flat, UNIT).tolist())
    units = len(flat) // UNIT
    whole = units * UNIT
    sums = R.row_sums(flat[:whole].reshape(units, UNIT)).tolist()
    if whole < len(flat):
        sums.append(float(total(flat[whole:])))
    return _in_pairs(sums)


def squared_in_units(flat: Array) -> float | None:
    """The same of squares, where loops add them up."""
    if flat.dtype.char != "f" or (loops := compiled.loops()) is None:
        return None
    return _in_pairs(R.unit_sums(loops, flat, UNIT, True).tolist())


def _in_pairs(sums: list[float]) -> float:
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=False)
        sums = [*[a + b for a, b in pairs], *sums[len(sums) // 2 * 2 :]]
    return sums[0]
