"""float32 products of the small matrices of two batches, pair by pair, by the function that NumPy
asks for each of them too, so with its bits: one call of C, which a team shares (`loops`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import compiled, openblas, sharing

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

WORTH: Final = 1 << 18  # multiplications of a batch
_WORK: Final = 4  # so many are as much work as an element that `sharing` counts
_ELEMENT: Final = 0.08e-9  # seconds of it,
_MATRIX: Final = 0.2e-6  # and of a matrix besides
_ITEM: Final = 4  # bytes


def multiply(a: Array, b: Array, out: Array) -> bool:
    """out = a @ b of float32 (*batch, m, k) and (*batch, k, n); whether it is done. `out` shares no
    memory with the others."""
    loops, where = compiled.loops(), openblas.place()
    if loops is None or where is None or b.dtype.char != "f" or out.dtype.char != "f":
        return False
    plan = _plan(a.shape, b.shape, a.strides, b.strides, out.strides)
    if plan is None:
        return False
    turned_a, turned_b, elements, cost = plan
    a, b = a.mT if turned_a else a, b.mT if turned_b else b
    if a.ndim == 3:
        a, b, out = a[None], b[None], out[None]
    given = *where, turned_a, turned_b, a, b, out
    done: bool = sharing.call(loops.products, elements, cost, *given)
    return done


@lru_cache(1024)
def _plan(
    a: Ints, b: Ints, lies_a: Ints, lies_b: Ints, lies: Ints
) -> tuple[bool, bool, int, float] | None:
    """Whether each factor is turned, and what work it is; None where a product is another thing to
    NumPy than BLAS's of two matrices that lie so."""
    (*lead, rows, depth), columns = a, b[-1]
    one, other = _turned(rows, depth, lies_a), _turned(depth, columns, lies_b)
    into = _turned(rows, columns, lies)
    if len(a) > 4 or min(rows, columns, depth) < 2 or None in (one, other) or into is not False:
        return None
    if not 0 < rows * columns * depth <= openblas.ALONE:
        return None
    mirrored = rows == columns and lies_a[-2:] == (lies_b[-1], lies_b[-2])
    if mirrored and lies_a[:-2] != lies_b[:-2]:  # else no pair begins at the same place, or all
        return None
    count = math.prod(lead)
    elements = count * rows * columns * depth // _WORK
    return bool(one), bool(other), elements, _ELEMENT + _MATRIX * count / elements


def _turned(rows: int, columns: int, strides: Ints) -> bool | None:
    """Whether matrices are transposes of those whose rows are runs of memory; None if they are
    none, either."""
    *_, down, right = strides
    if right == _ITEM and down % _ITEM == 0 and down >= columns * _ITEM:
        return False
    if down == _ITEM and right % _ITEM == 0 and right >= rows * _ITEM:
        return True
    return None
