"""Extremes, products, truth, and other reductions of small arrays whose results are the same in
any order: the fast paths of `extremes.py`, and of integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.eval import reducers as R
from skimp._engine.eval.reducers import Reducer
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import fresh
from skimp._kernels import bare
from skimp._kernels.scratch import row_extremes
from skimp._ops.reduce.small import WHOLE, axes_of, blocked, one_dim, resident, row_major, rows


def extreme(ufunc: Any, how: Reducer) -> Any:
    """`amax` or `amin`."""

    def fast(input: Any, dim: Any = (), keepdim: bool = False) -> Any:
        if input._dtype in WHOLE:
            return _whole(ufunc.reduce, input, dim, keepdim)
        if input._np is not None and dim and (type(dim) is tuple or type(dim) is list):
            dim = one_dim(dim, input._np.ndim)
            dim = () if dim is None else dim
        if keepdim is False and type(dim) is tuple and not dim:
            x = resident(input) if input._np is None else row_major(input)
            return (
                None if x is None else fresh(row_extremes(ufunc, x.reshape(1, -1))[0], input._dtype)
            )
        x = rows(input, dim) if keepdim is False else None
        if x is None:
            return blocked(input, dim, keepdim, how)
        if x.ndim == 2:
            return fresh(row_extremes(ufunc, x), input._dtype)
        found = row_extremes(ufunc, x.reshape(-1, x.shape[-1]))
        return fresh(found.reshape(x.shape[:-1]), input._dtype)

    return fast


def prod(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """`prod`, of all elements or along one dim."""
    if dtype is not None or (dim is not None and type(dim) is not int):
        return None
    if input._dtype is dtypes.int64:
        return _whole(np.multiply.reduce, input, dim, keepdim)
    return blocked(input, dim, keepdim, R.PROD)


def _whole(reduce: Any, input: Any, dim: Any, keepdim: Any) -> Any:
    """A reduction of integers, to the same type."""
    x = input._np
    axes = None if x is None or not x.size else axes_of(x, dim, keepdim)
    return None if axes is None else fresh(reduce(x, axes, None, None, keepdim), input._dtype)


def truth(every: bool) -> Any:
    """`all` or `any`."""
    along: Any = (np.logical_and if every else np.logical_or).reduce

    def fast(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        x = input._np
        if x is None or x.dtype.kind not in "bif":
            return None
        if dim is not None or keepdim is not False:
            axes = axes_of(x, tuple(dim) if type(dim) is list else dim, keepdim)
            if axes is None or not x.ndim or dim in ((), []):  # reduced along none
                return None
            return fresh(along(x, axes, None, None, keepdim), dtypes.bool)
        count = bare.count_nonzero(x)
        return fresh(np.array(count == x.size if every else count > 0), dtypes.bool)

    return fast
