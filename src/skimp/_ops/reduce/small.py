"""Reductions of small row-major arrays: the fast paths of `reductions.py` and `softmax.py`.

Each gives the bits of the general way, whose cuts (`eval/reduce.py`) leave arrays of this size in
one piece: rows of fewer than `PIECE` elements are one NumPy sum, and so are few short columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.reduction import dims_of, kept_shape
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.transforms import active
from skimp._engine.eval import reducers as R
from skimp._engine.eval.reduce import Geometry, geometry, is_short, of_units
from skimp._engine.eval.reducers import Reducer, in_range, is_in_range
from skimp._engine.memory.layout import numel, orders
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, compiled
from skimp._kernels.bare import einsum
from skimp._kernels.scratch import row_tops
from skimp._kernels.sharing import FROM
from skimp._kernels.threads import quietly
from skimp._ops.reduce.small_sums import (
    COLUMN,
    LONG,
    PIECE,
    UNIT,
    add,
    all_finite,
    column_sums,
    in_units,
    long_columns,
    row_sums,
    squared,
    squared_in_units,
    total,
)
from skimp.config import config

WHOLE: Final = frozenset({dtypes.int64, dtypes.int32})
_ALONE: Final = 1 << 21  # elements up to which a second thread comes too late to help
highest: Final[Any] = bare.highest  # as `add`
ROWS: Final = 1 << 17  # elements up to which functions of rows take all rows at once


def floats(input: Any, kinds: frozenset[dtypes.dtype] = dtypes.FLOATING) -> Array | None:
    """The elements of a small tensor of floats (of `kinds`) that is not empty, row-major. What has
    gaps is copied: the general way reads it in the same order, and makes rows of it as well.
    """
    x: Array | None = input._np
    if x is None or input._dtype not in kinds or not x.size:
        return None
    return x if x.flags.c_contiguous else _without_gaps(x)


def _without_gaps(x: Array) -> Array | None:
    """A row-major copy of an array whose dims lie in their order."""
    last = math.inf
    for step in x.strides:
        if not 0 < step < last:
            return None
        last = step
    return np.ascontiguousarray(x)


def row_major(input: Any, kinds: frozenset[dtypes.dtype] = dtypes.FLOATING) -> Array | None:
    """The same as `floats`, copied where they lie in any other order."""
    x: Array | None = input._np
    if x is None or input._dtype not in kinds or not x.size:
        return None
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def rows(input: Any, dim: Any) -> Array | None:
    """The same as `floats`, where `dim` is the last one and rows are short."""
    x = floats(input)
    if x is None or type(dim) is not int or (dim != -1 and dim != x.ndim - 1):
        return None
    return x if x.ndim and x.shape[-1] < PIECE else None


def resident(input: Any) -> Array | None:
    """The row-major elements of a tensor of floats, if in memory and few enough for one thread;
    copied where few have gaps, as `floats` does.
    """
    if (
        input._hollow
        or input._skimp_neg
        or input._dtype not in dtypes.FLOATING
        or not config.small_below
    ):
        return None
    if input._storage.deferred is not None or not 0 < numel(input._skimp_layout.shape) <= _ALONE:
        return None
    x: Array = input._skimp_array()
    if x.flags.c_contiguous:
        return x
    return _without_gaps(x) if x.size < ROWS else None


def _summed(x: Array, dim: Any, keepdim: Any) -> Any:
    """The sums over one dim, or over the first dims, and how many elements make one of them."""
    if type(dim) is tuple:
        if len(dim) == 1:
            dim = dim[0]
        elif dim == (0, 1) and x.ndim == 3 and not keepdim:
            x, dim = x.reshape(-1, x.shape[2]), 0
        elif dim and dim == tuple(range(x.ndim - len(dim), x.ndim)):  # the last ones
            kept = x.shape[: -len(dim)]
            n = x.size // math.prod(kept)
            sums = row_sums(x.reshape(*kept, n)) if n < PIECE else None
            if sums is None or type(keepdim) is not bool:
                return None
            return (sums.reshape(*kept, *(1,) * len(dim)) if keepdim else sums), n
    if type(dim) is not int or type(keepdim) is not bool or not -x.ndim <= dim < x.ndim:
        return None
    n = x.shape[dim]
    if dim in (-1, x.ndim - 1):
        return (row_sums(x, keepdim), n) if n < PIECE else None
    short = x.ndim == 2 and n < COLUMN and x.shape[1] > 1
    return (add(x, dim, None, None, keepdim), n) if short else None


def blocked(input: Any, dim: Any, keepdim: Any, how: Reducer, degrees: float = 0) -> Tensor | None:
    """What `dispatch.reduction.reduced` gives of a tensor of floats, over any dims, where one
    thread takes what lies in memory. None unless more than `degrees` elements make one of the
    result.
    """
    x = floats(input) if input._np is not None else resident(input)
    if type(dim) is list:
        dim = tuple(dim)
    if type(dim) is tuple:
        if not _INTS.issuperset(map(type, dim)):
            return None
    elif dim is not None and type(dim) is not int:
        return None
    if type(keepdim) is not bool:
        return None
    if x is None:
        return _turned(input, dim, keepdim, how, degrees)
    form = _form(x.shape, dim, keepdim)
    if form is None or form[2] <= degrees:
        return None
    cut, shape, n = form
    if not is_short(cut, how, x.dtype) or cut.size // n >= max(1, config.small_below):
        return None
    value = quietly(of_units, x, cut, how)
    return fresh(value.astype(x.dtype, copy=False).reshape(shape), input._dtype)


_INTS: Final = frozenset({int})


def _turned(input: Any, dim: Any, keepdim: bool, how: Reducer, degrees: float) -> Tensor | None:
    """`blocked` of a small array whose dims lie in another order, or are expanded: it is reduced as
    it lies.
    """
    x: Array | None = input._np
    if x is None or input._dtype not in dtypes.FLOATING or not x.size:
        return None
    form = _turned_form(x.shape, x.strides, dim, keepdim)
    if form is None:
        return None
    (cut, shape, n), order, kept, back = form
    few = cut.size // n < max(1, config.small_below)
    if n <= degrees or not few or not is_short(cut, how, x.dtype):
        return None
    value = quietly(of_units, np.ascontiguousarray(x.transpose(order)), cut, how)
    value = np.ascontiguousarray(value.reshape(kept).transpose(back), x.dtype)
    return fresh(value.reshape(shape), input._dtype)


@lru_cache(maxsize=1024)
def _turned_form(
    shape: tuple[int, ...], strides: tuple[int, ...], dim: Any, keepdim: bool
) -> tuple[Form, tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """The form of the array as it lies, but for the result's shape, which is that of the array
    itself; the order of its dims there, the kept ones' sizes in that order, and the permutation
    that undoes theirs.
    """
    if 1 in shape:  # whose strides may be any
        return None
    order = orders(shape, strides)[0]
    try:
        dims = dims_of(dim, len(shape))
    except (IndexError, RuntimeError):  # the general way says so
        return None
    form = _form(tuple([shape[d] for d in order]), tuple([order.index(d) for d in dims]), False)
    if form is None:
        return None
    inner = [d for d in order if d not in dims]
    back = tuple([inner.index(d) for d in sorted(inner)])
    cut, kept, n = form
    return (cut, kept_shape(shape, dims, keepdim), n), order, kept, back


def one_dim(dim: Any, ndim: int) -> Any:
    """A list of dims as its one number, or as None where it has all; else a tuple of them."""
    if type(dim) is list:
        dim = tuple(dim)
    if type(dim) is not tuple or not dim or not _INTS.issuperset(map(type, dim)):
        return dim
    if len(dim) == 1:
        return dim[0]
    return None if dim == _all_dims(ndim) else dim


@lru_cache(maxsize=64)
def _all_dims(ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim))


Form = tuple[Geometry, tuple[int, ...], int]


@lru_cache(maxsize=1024)
def _form(shape: tuple[int, ...], dim: Any, keepdim: bool) -> Form | None:
    """How an array is cut, the result's shape, and how many elements make one of it."""
    try:
        dims = dims_of(dim, len(shape))
    except (IndexError, RuntimeError):  # the general way says so
        return None
    cut = geometry(shape, dims)
    kept = kept_shape(shape, dims, keepdim)
    return cut, kept, cut.size // numel(kept)


def sum_(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """`sum`."""
    x = input._np
    d = input._dtype
    if x is None and dtype is None:
        if dim is not None or keepdim:
            bias = keepdim is False and type(dim) is tuple and dim == (0,) and type(dim[0]) is int
            x = resident(input) if bias else None
            sums = None if x is None else long_columns(x)
            return blocked(input, dim, keepdim, R.SUM) if sums is None else fresh(sums, d)
        x = resident(input)
    if x is None or dtype is not None or not x.size:
        return None
    if d not in dtypes.FLOATING:
        return _counted(x, d, dim, keepdim)
    if not x.flags.c_contiguous:
        if x.ndim == 1 or (x.ndim == 2 and dim == (0,) and not any(x.strides)):
            x = x.copy()  # a row, or one element, expanded: what a bias gets of a sum's gradient
        elif (x := _without_gaps(x)) is None:
            return blocked(input, dim, keepdim, R.SUM)
    if type(dim) is tuple or type(dim) is list:
        dim = dim[0] if len(dim) == 1 else one_dim(dim, x.ndim)
    if dim is None:
        if keepdim:
            return blocked(input, dim, keepdim, R.SUM)
        if d is dtypes.float32 and x.size < FROM and (loops := compiled.loops()) is not None:
            return fresh(loops.totals(x, 0, 0), d)  # as `total`
        return fresh(einsum("i->", x.reshape(-1)) if x.size <= R.SHORT else total(x), d)
    if keepdim is False and type(dim) is int and -x.ndim <= dim < x.ndim:
        last = dim in (-1, x.ndim - 1)
        if x.shape[dim] < COLUMN and (last or (x.ndim == 2 and x.shape[1] > 1)):
            return fresh(row_sums(x) if last else add(x, dim), d)
        if not dim and (sums := long_columns(x)) is not None:
            return fresh(sums, d)
    found = _summed(x, dim, keepdim)
    return blocked(input, dim, keepdim, R.SUM) if found is None else fresh(found[0], d)


def _counted(x: Array, d: dtypes.dtype, dim: Any, keepdim: Any) -> Any:
    """Sums of bools or integers, which are exact in any order."""
    if d.category > dtypes.INT:
        return None
    if d is dtypes.bool and dim is None and not keepdim:
        return fresh(np.array(bare.count_nonzero(x), np.int64), dtypes.int64)
    axes = axes_of(x, dim, keepdim)
    return None if axes is None else fresh(add(x, axes, np.int64, None, keepdim), dtypes.int64)


def axes_of(x: Array, dim: Any, keepdim: Any) -> tuple[int, ...] | None:
    """The dims that are asked for, as NumPy takes them; None where the general way refuses them, or
    where a result may lie in another order.
    """
    if type(keepdim) is not bool or not x.flags.c_contiguous:
        return None
    if not (
        dim is None or type(dim) is int or (type(dim) is tuple and _INTS.issuperset(map(type, dim)))
    ):
        return None
    try:
        return dims_of(dim, x.ndim)
    except (IndexError, RuntimeError):
        return None


def mean(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """`mean`."""
    if dtype is not None:
        return None
    if input._np is None and (dim is not None or keepdim):
        return blocked(input, dim, keepdim, R.MEAN)
    x = resident(input) if input._np is None else floats(input)
    if x is not None and (type(dim) is tuple or type(dim) is list):
        dim = one_dim(dim, x.ndim)
    if x is None or (dim is None and keepdim):
        return blocked(input, dim, keepdim, R.MEAN)
    if x.size > UNIT:
        return fresh(x.dtype.type(in_units(x.reshape(-1)) / x.size), input._dtype)
    found = (total(x), x.size) if dim is None else _summed(x, dim, keepdim)
    if found is None:
        return blocked(input, dim, keepdim, R.MEAN)
    sums, n = found
    return fresh(sums / sums.dtype.type(n), input._dtype)


def moments(input: Any, dim: Any, keepdim: Any, degrees: float) -> Array | None:
    """The squared distances from the mean along the last dim, down columns, or of all elements,
    over n - degrees.
    """
    if input._np is not None and (type(dim) is tuple or type(dim) is list):
        dim = one_dim(dim, input._np.ndim)
    if dim is None and keepdim is False:
        return _moments_of_all(input, degrees)
    x, axis = _spread(input, dim)
    if x is None or type(keepdim) is not bool or not x.shape[axis] > degrees:
        return None
    number = x.dtype.type
    n = x.shape[axis]
    sums = row_sums if axis else column_sums
    middle = sums(x, True)
    apart = bare.subtract(x, bare.divide(middle, number(n), out=middle))
    squares = sums(bare.square(apart, out=apart), keepdim)
    if number is np.float32 and not in_range(squares):
        return None
    return squares / number(n - degrees)  # type: ignore[no-any-return]


def _moments_of_all(input: Any, degrees: float) -> Array | None:
    x = floats(input)
    if x is None or not degrees < x.size < LONG:
        return None
    middle = total(x) / x.size
    if x.dtype.char == "f" and (loops := compiled.loops()) is not None:
        squares = loops.squares(x.reshape(-1), np.array([middle], x.dtype), 0, 0)
    else:
        apart = bare.subtract(x.reshape(-1), middle)
        squares = total(bare.square(apart, out=apart))
    if x.itemsize == 4 and not is_in_range(float(squares)):
        return None
    return squares / (x.size - degrees)  # type: ignore[no-any-return]


def _spread(input: Any, dim: Any) -> tuple[Array | None, int]:
    """The array whose `moments` are asked for along this axis."""
    if dim == 0 and type(dim) is int:
        x = floats(input)
        if x is not None and x.ndim == 2 and len(x) < COLUMN and x.shape[1] > 1:
            return x, 0
    return rows(input, dim), -1


def norm(input: Any) -> Any:
    """The 2-norm of all elements."""
    x = resident(input) if input._np is None else floats(input)
    if x is None:
        return None
    if x.size <= UNIT:
        return fresh(bare.sqrt(squared(x)), input._dtype)
    squares = squared_in_units(x.reshape(-1))
    return None if squares is None else fresh(x.dtype.type(math.sqrt(squares)), input._dtype)


def each_norm(tensors: Sequence[Tensor], general: Callable[[Tensor], Tensor]) -> Any:
    """The 2-norm of each of several tensors, side by side: looked at together they take half as
    long as by `norm` and a stack. `general` gives that of one that is not small.
    """
    if active or modes.state.grad or not tensors:
        return None
    dtype, sums = tensors[0]._dtype, []
    if dtype not in dtypes.FLOATING:
        return None
    others = []
    for i, t in enumerate(tensors):
        if t._dtype is not dtype or type(t) not in ORDINARY:
            return None
        x = resident(t) if t._np is None and numel(shape_of(t)) < ROWS else t._np
        if x is not None and x.size and x.flags.c_contiguous:
            sums.append(squared(x))
        else:
            sums.append(0.0)
            others.append(i)
    found = bare.sqrt(np.array(sums, dtype.np))
    for i in others:
        found[i] = general(tensors[i])._skimp_array()
    return fresh(found, dtype)


def norms(input: Any, dim: Any, keepdim: Any) -> Any:
    """The 2-norms along a dim, of few elements each."""
    x = floats(input)
    if x is None or not x.ndim or x.size >= LONG:
        return None
    dim = one_dim(dim, x.ndim)
    if dim is None and keepdim is False:
        return fresh(bare.sqrt(squared(x)), input._dtype)
    found = _summed(bare.square(x), dim, keepdim)
    if found is None:
        return None
    return fresh(bare.sqrt(found[0]), input._dtype)


def logsumexp(input: Any, dim: Any, keepdim: bool = False) -> Any:
    """`logsumexp`, shorter along the last dim, of rows whose largest elements are finite."""
    if dim is None:  # the general way refuses it
        return None
    if type(dim) in (list, tuple) and len(dim) == 1:
        dim = dim[0]
    x = rows(input, dim)
    if x is None or type(keepdim) is not bool:
        return blocked(input, dim, keepdim, R.LOGSUMEXP)
    shape = x.shape
    if x.ndim > 2 and x.size:  # the largest of rows are found sooner than NumPy reduces a dim
        x = x.reshape(-1, shape[-1])
    top = row_tops(x) if x.ndim == 2 else highest(x, -1, None, None, True)
    if not all_finite(top):
        return blocked(input, dim, keepdim, R.LOGSUMEXP)
    e = np.subtract(x, top)
    sums = row_sums(bare.exp(e, out=e), True)
    np.add(np.log(sums, out=sums), top, out=sums)
    return fresh(sums.reshape((*shape[:-1], 1) if keepdim else shape[:-1]), input._dtype)


def logsumexp_back(g: Any, input: Any, result: Any, dim: Any) -> Tensor | None:
    """The gradient of `logsumexp` of a small row-major tensor, not recorded."""
    x, y, z = input._np, result._np, g._np
    if x is None or y is None or z is None or modes.state.grad or not x.flags.c_contiguous:
        return None
    if input._dtype not in dtypes.FLOATING or g._dtype is not input._dtype:
        return None
    kept = kept_shape(x.shape, dims_of(dim, x.ndim), True)
    made = np.empty(x.shape, x.dtype)
    np.subtract(x, y.reshape(kept), out=made)
    np.multiply(z.reshape(kept), bare.exp(made, out=made), out=made)
    return fresh(made, input._dtype)


def rows_or_row(input: Any, dim: Any) -> Array | None:
    """The rows of a small tensor along its last dim as (count, n), for functions of rows; one row
    alone as (n,).
    """
    x: Array | None = input._np
    if x is None or type(dim) is not int or input._dtype not in dtypes.FLOATING:
        return None
    last = x.ndim - 1
    if last < 0 or (dim != -1 and dim != last) or not 0 < x.size < ROWS:
        return None
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    if not last:
        return x
    n = x.shape[last]
    return x.ravel() if n == x.size else x if last == 1 else x.reshape(-1, n)


def few_columns(input: Any, dim: Any) -> Array | None:
    """A small tensor around a dim that is not its last, as (outer, n, inner)."""
    x = row_major(input)
    if x is None or type(dim) is not int or x.size >= ROWS:
        return None
    d = dim + x.ndim if dim < 0 else dim
    if not 0 <= d < x.ndim - 1 or (inner := math.prod(x.shape[d + 1 :])) == 1:
        return None
    return x.reshape(-1, x.shape[d], inner)
