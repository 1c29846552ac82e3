"""Where values of small arrays belong, and which are distinct: the fast paths of `searching.py`
and `uniques.py`, with the bits of the general way.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._kernels.pointwise import may_have_nan
from skimp._ops.reduce.small import row_major
from skimp._ops.reduce.small_order import ORDERED

_PAIRS: Final = 1 << 10  # of an element and one that it may equal, which are all compared


def search(
    sorted_sequence: Any,
    input: Any,
    *,
    out_int32: Any = False,
    right: Any = False,
    side: Any = None,
    sorter: Any = None,
) -> Tensor | None:
    """`searchsorted` in one row without NaN, which NumPy takes for the largest."""
    if type(input) is not Tensor or sorter is not None or type(right) is not bool:
        return None
    if side not in (None, "left", "right") or (right and side == "left"):
        return None
    row, x = row_major(sorted_sequence, ORDERED), row_major(input, ORDERED)
    if row is None or x is None or row.ndim != 1 or input._dtype is not sorted_sequence._dtype:
        return None
    if may_have_nan(row):
        return None
    found = row.searchsorted(x, "right" if right or side == "right" else "left")
    return fresh(found.astype(np.int32), dtypes.int32) if out_int32 else fresh(found, dtypes.int64)


def bucket(input: Any, boundaries: Any, *, out_int32: Any = False, right: Any = False) -> Any:
    """`bucketize`."""
    if type(boundaries) is not Tensor:
        return None
    return search(boundaries, input, out_int32=out_int32, right=right)


def member(
    elements: Any = None,
    test_elements: Any = None,
    *,
    assume_unique: Any = False,
    invert: Any = False,
    element: Any = None,
    test_element: Any = None,
) -> Tensor | None:
    """`isin` of few among few."""
    if type(elements) is not Tensor or type(test_elements) is not Tensor:
        return None
    if element is not None or test_element is not None:
        return None
    x, tests = row_major(elements, ORDERED), row_major(test_elements, ORDERED)
    if x is None or tests is None or elements._dtype is not test_elements._dtype:
        return None
    if x.size * tests.size > _PAIRS:
        return None
    found = np.logical_or.reduce(bare.equal(x[..., None], tests.reshape(-1)), -1)
    return fresh(bare.logical_not(found) if invert else found, dtypes.bool)


def distinct(
    input: Any,
    sorted: Any = True,
    return_inverse: Any = False,
    return_counts: Any = False,
    dim: Any = None,
) -> Any:
    """`unique` of all values."""
    if dim is not None or (input._rg and modes.state.grad):
        return None
    own = row_major(input, ORDERED)
    x = values_in_order(own)
    if x is None or own is None:
        return None
    other = np.empty(x.size, np.bool_)
    other[0] = True
    bare.not_equal(x[1:], x[:-1], out=other[1:])
    values = x[other]
    found = [fresh(values, input._dtype)]
    if return_inverse:
        found.append(fresh(values.searchsorted(own), dtypes.int64))
    if return_counts:
        first = other.nonzero()[0]
        ends = np.append(first[1:], x.size)
        found.append(fresh(bare.subtract(ends, first, out=ends), dtypes.int64))
    return tuple(found) if len(found) > 1 else found[0]


def values_in_order(x: Array | None, dim: int | None = None) -> Array | None:
    """The values of an array in order along a dim, or of all (None), as a stable sort has them:
    in a fifth of the time of one that has their places. None where they may be NaN, or zeros of two
    signs.
    """
    if x is None:
        return None
    found = x.flatten() if dim is None else x.copy()
    found.sort(dim or 0)
    if x.dtype.kind == "f" and (bare.count_nonzero(found) < x.size or may_have_nan(found)):
        return None
    return found
