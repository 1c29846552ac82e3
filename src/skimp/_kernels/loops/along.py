"""Elements along a dim, where a small index tells (`along.h`), of arrays that lie row by row.
Nothing is done where anything is unusual, or wrong."""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:
    import numpy as np

    def _along(x: Any, dim: Any, index: Any) -> Any:
        """Where they lie; None where they are not for this."""
        if not all([type(a) is np.ndarray and a.flags.c_contiguous for a in (x, index)]):
            return None
        if type(dim) is not int or not -x.ndim <= dim < x.ndim or index.ndim != x.ndim:
            return None
        dim %= x.ndim
        beyond = [d != dim and index.shape[d] > n for d, n in enumerate(x.shape)]
        if index.dtype.char != "l" or not 0 < index.size <= 4096 or any(beyond):
            return None
        if index.min() < 0 or index.max() >= x.shape[dim] or np.may_share_memory(x, index):
            return None
        at = list(np.indices(index.shape, sparse=True))
        at[dim] = index
        return np.broadcast_to(np.ravel_multi_index(at, x.shape), index.shape)

    def along_gathered(x: Any, dim: Any, index: Any) -> Any:
        at = _along(x, dim, index)
        return None if at is None else x.reshape(-1)[at]

    def along_written(x: Any, dim: Any, index: Any, values: Any, added: Any) -> Any:
        at = _along(x, dim, index)
        if at is None or not isinstance(values, (np.ndarray, np.generic)):
            return False
        if values.dtype != x.dtype or (values.shape == () and isinstance(values, np.ndarray)):
            return False
        if values.shape != index.shape and (added or values.shape):
            return False
        if np.may_share_memory(values, x) or x.dtype.char not in "fdl":
            return False
        if added:
            np.add.at(x.reshape(-1), at, values)
        else:
            x.reshape(-1)[at] = values
        return True


def gathered(x: Any, dim: Any, index: Any) -> Any:
    """The elements of x, as a new array like the index; None where that is not done."""
    return along_gathered(x, dim, index)


def put_along(x: Any, dim: Any, index: Any, values: Any) -> Any:
    """Write a value of x's type for each element of the index, or a number; whether it is done."""
    return along_written(x, dim, index, values, False)


def added_along(x: Any, dim: Any, index: Any, values: Any) -> Any:
    """Add a value for each element of the index, one after the other; whether it is done."""
    return along_written(x, dim, index, values, True)
